"""Learning curves: a point counts each environment once, with its latest episode, from when each
has ended one.
"""

import numpy as np
import pytest
import torch

import cupydrive as cd
from cupydrive.drawing.curves import bars
from cupydrive.errors import ParameterError
from cupydrive.executors.host import HostExecutor
from cupydrive.playing.rollout import LatestEpisodes
from cupydrive.training.begin import make_run
from cupydrive.training.report import MetricReport
from cupydrive.training.run import Run

SMALL = {"num_steps": 8, "hidden": (8,)}


def expected(run, kept):
    """Take in the run's last rollout, step by step; return the means over environments, or None as
    long as one has none.
    """
    r = run.rollout
    over = (r.terminated | r.truncated).numpy()
    for t, e in zip(*np.nonzero(over), strict=True):
        ended = {name: float(returns[t, e].mean()) for name, returns in r.episode_return.items()}
        ended |= {name: float(values[t, e]) for name, values in r.metrics.items()}
        kept[int(e)] = {"length": int(r.episode_length[t, e]), **ended}
    if len(kept) < run.num_envs:
        return None
    return {
        key: np.mean([episode[key] for episode in kept.values()])
        for key in next(iter(kept.values()))
    }


@pytest.mark.parametrize(("env", "num_envs", "params"), [
    ("tag_grid", 12, dict(grid_length=5, max_episode_steps=21)),
    # returns and lengths side by side; more than one team's environments
    ("cartpole", 40, dict(max_episode_steps=21)),
])  # fmt: skip
def test_a_point_is_the_mean_over_environments_of_each_ones_latest_episode(env, num_envs, params):
    run = make_run(env, cd.A2C(**SMALL), num_envs=num_envs, device="cpu", **params)
    report, kept, waited, ended = MetricReport(run), {}, 0, 0
    numbers = torch.zeros(report.size, dtype=torch.float64)
    for _ in range(12):
        run.iterate()
        ended += int((run.rollout.terminated | run.rollout.truncated).sum())
        wanted = expected(run, kept)
        report.make(numbers)
        episodes, shortest, means, *_ = report.read(numbers)
        assert episodes == ended
        ended = 0
        assert (shortest == 0) == (wanted is None)
        if wanted is None:
            waited += 1
        else:
            np.testing.assert_allclose(means, list(wanted.values()), rtol=1e-6)
    assert waited >= 1, "every environment ended an episode at once"


def test_a_team_takes_in_what_one_thread_does(monkeypatch):
    run = make_run(
        "tag_grid", cd.A2C(**SMALL), num_envs=40, device="cpu", grid_length=5, max_episode_steps=21
    )
    with monkeypatch.context() as patched:
        patched.setattr(run.batch, "executor", HostExecutor(team_threads=8))
        team = LatestEpisodes(run.rollout)
    for _ in range(4):
        run.iterate()
        team.add()
    assert team.count == run.episodes.count > 40 and torch.equal(team.values, run.episodes.values)


def test_curves_begin_when_each_environment_has_ended_an_episode_and_go_on_after_a_resume(tmp_path):
    options = dict(
        num_envs=12,
        steps=12 * 8 * 2,
        device="cpu",
        progress=False,
        grid_length=5,
        max_episode_steps=21,
    )
    run = cd.train("tag_grid", cd.A2C(**SMALL), out=tmp_path, **options)
    assert not any("episodic" in key for row in run.metrics for key in row)
    assert run.plot().axes[0].lines[0].get_xdata().size == 0
    assert (
        run.plot("charts/episodic_length", "losses/tagger/entropy")
        .axes[0]
        .lines[0]
        .get_xdata()
        .size
        == 0
    )
    loaded = Run.load(tmp_path)
    cd.train(loaded, steps=12 * 8, progress=False)
    with pytest.raises(ParameterError, match="Did you mean 'charts/episodic_return/tagger'"):
        loaded.plot("charts/episodic_return/taggr")
    assert {"charts/episodic_return/tagger", "charts/episodic_length"} <= loaded.metrics[-1].keys()


def test_bars_say_their_numbers_in_digits():
    figure = bars({"few": 0.125, "more": 2463.9, "many": 118_901.5}, "copies", "rate")
    assert [text.get_text() for text in figure.axes[0].texts] == ["0.125", "2.46 k", "119 k"]
