"""Options that a command does not have, numbers that are none, names that an option has taken: a line says what to write."""

import pytest

from cupydrive.cli.flags import options, wrong_option
from cupydrive.cli.main import COMMANDS, main

pytestmark = pytest.mark.full


def said(line, capsys):
    """Return what a wrong command line says: one line."""
    assert main(line.split()) == 2
    words = capsys.readouterr().err
    assert words.count("\n") == 1 and words.startswith("cupydrive: ")
    return words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train cartpole --learning-rate 3", "has no option '--learning-rate'. Did you mean --set learning_rate=3?"),
        ("train cartpole --lr=1e-3", "Did you mean --set learning_rate=1e-3? See: cupydrive train --help"),
        ("train cartpole --batch_size 4", "Did you mean --set num_minibatches=4?"),
        ("train pendulum --algorithm ddpg --batch-size 4", "Did you mean --set batch_size=4?"),
        ("train pendulum --tau", "Did you mean --set tau=... or --param tau=...?"),
        ("evaluate tag_grid --grid-length 4", "Did you mean --param grid_length=4? See: cupydrive evaluate --help"),
        ("train cartpole --total-timesteps 100", "Did you mean --steps 100? See: cupydrive train --help"),
        ("evaluate cartpole --n_eval_episodes=9", "Did you mean --episodes 9?"),
        ("sweep cartpole --trails 3 --out o", "Did you mean '--trials'?"),
        ("sweep cartpole --learning-rate 3 --out o", "sweep has no option '--learning-rate'. See:"),  # nor has it --set
        ("train cartpole --num-envs foo", "--num-envs 'foo'; it must be an integer"),
        ("train cartpole --num_envs 1e3", "--num-envs '1e3'; it must be an integer"),
        ("train cartpole --keep=x", "--keep 'x'; it must be an integer"),
        ("train cartpole --steps many", "--steps 'many'; it must be a number, such as 2e6"),
    ],
)
def test_a_wrong_option_is_told_with_what_was_meant(line, words, capsys):
    assert words in said(line, capsys)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "train --set lr=1e-3 tworoom.py",
            "'tworoom.py' after --set is no KEY=VALUE; the environment comes first: cupydrive",
        ),
        ("train --param tag_grid", "'tag_grid' after --param is no KEY=VALUE"),
        ("train --pool runner tag_grid", "'tag_grid' after --pool is no group; the environment comes first"),
        ("train --set gamma=0.9", "train what? Environments: acrobot"),
    ],
)
def test_a_name_that_an_option_has_taken_is_told(line, words, capsys):
    assert main(line.split()) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_are_those_of_its_help(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert all(flag in shown for flag in options(COMMANDS[name]))


@pytest.mark.parametrize(
    "line",
    ["cartpole --steps 2e6 --no-resume --num_envs=None", "--lr --help", "cartpole -- --lr", "cartpole --num-envs"],
)
def test_what_is_right_or_the_parser_s_is_left_alone(line):
    assert wrong_option("train", COMMANDS["train"], line.split()) is None
