"""The checker kills altered kernels: every mutant is caught but those listed here, with the reason
why they are equal.
"""

from collections import Counter, defaultdict

import pytest
import shared_mutation
from conftest import run_python
from mutation import chosen, run

from cupydrive import envs
from cupydrive.codegen.source import kernel_text

pytestmark = pytest.mark.full

# Mutants of each shared file: 70 files take an hour on two cores. `python tests/tools/mutation.py
# --shared` runs 40 of each.
PER_FILE = 12
# (environment, the line before, the line after): why no check can see the difference.
LIMITS = "fallen = (math::abs(s.x) > p.x_limit) | (math::abs(s.theta) > p.theta_limit);"
EXACT = "differs only where a float lands on the limit exactly, which has probability 0"
ARRIVED = "at_goal = s.position >= p.goal_position && s.velocity >= p.goal_velocity;"
WALL = "s.velocity = (s.position == p.min_position) & (s.velocity < 0.0f) ? 0.0f : s.velocity;  // the wall stops it"
AT_REST = (
    "a car that the step has left at the wall does not move away from it: its velocity is 0 or less"
)
UP = "const bool up = -math::cos(s.theta1) - math::cos(s.theta2 + s.theta1) > p.goal_height;"
LEFT = "remaining += s.active[i];"
TAGGED = "if (nearest < radius * radius) {"
ZERO = "the sum is only compared with 0"
LEVEL = "return low + (high - low) * math::Divisor((float)(levels > 1 ? levels - 1 : 1)).of((float)(action - 1));"
ONE_LEVEL = "with one level this action is 1, and 0 is what is divided"
SPEED = "near.each(env, math::max(top_speed(p, true), top_speed(p, false)), [&](const auto& seen) {"
HINT = "at any speed the neighbours are the same, found sooner or later"
DAMAGE = "if (i == 0) s.damage = damage;"
SPEEDS = "speeds |= (drawn < 5 ? (u32)drawn + 1u : (u32)drawn - 4u | LEFT) << 4 * (4 * half + k);"
ROW = "for (int row = 0, rank = Random::below(words.z, math::popcount(free)); row < ROWS; ++row) {"
HIT = (
    "const bool hit = j != i && distance(next.x[i] - next.x[j], next.y[i] - next.y[j]) < TOUCHING;"
)
NOBODY_LEFT = "env.first.left(0) = env.second.left(0) = 0;"
CARS = ("mountain_car", "mountain_car_continuous")
EQUIVALENT = {
    **{(car, ARRIVED, ARRIVED.replace("position >=", "position >")): EXACT for car in CARS},
    **{(car, ARRIVED, ARRIVED.replace("velocity >=", "velocity >")): EXACT for car in CARS},
    **{(car, WALL, WALL.replace("<", "<=")): AT_REST for car in CARS},
    **{(car, WALL, WALL.replace("< 0.0f", "< (0.0f * 1.5f + 0.25f)")): AT_REST for car in CARS},
    ("acrobot", UP, UP.replace(">", ">=")): EXACT,
    (
        "rice_n",
        DAMAGE,
        DAMAGE.replace("==", "!="),
    ): "all regions work out the same number, and whoever writes it",
    ("minatar_asterix", ROW, ROW.replace("<", "<=")): "the rank of a free row is used up by then",
    (
        "minatar_freeway",
        SPEEDS,
        SPEEDS.replace("-", "+"),
    ): "of the numbers 5 to 9, n - 4 with the bit 8 is n + 4",
    ("connect_four", NOBODY_LEFT, ""): "no player ever leaves, and buffers are 0 when they are new",
    ("tag_continuous", LEFT, LEFT.replace("+", "-")): ZERO,
    ("tag_continuous", LEVEL, LEVEL.replace(": 1)", ": 2)")): ONE_LEVEL,
    ("tag_continuous", LEVEL, LEVEL.replace("> 1", "> 2")): "with two levels both numbers are 1",
    ("tag_continuous", SPEED, SPEED.replace("math::max", "math::min")): HINT,
    ("tag_continuous", TAGGED, TAGGED.replace("<", "<=")): EXACT,
    ("simple_spread", HIT, HIT.replace("<", "<=")): EXACT,
    ("cartpole", LIMITS, LIMITS.replace("x) >", "x) >=")): EXACT,
    ("cartpole", LIMITS, LIMITS.replace("theta) >", "theta) >=")): EXACT,
}


def survivors(name, selection):
    verdicts = run(selection)
    listed = {key for key in EQUIVALENT if key[0] == name}
    alive = [m for m, v in zip(selection, verdicts, strict=True) if v == "survived"]
    return [str(m) for m in alive if (name, m.before.strip(), m.after.strip()) not in listed]


@pytest.mark.parametrize("name", envs.names())
def test_a_sample_of_mutants_is_killed(name):
    """The last one: the first are dropped syncs, which tests/checks/test_check.py has, too."""
    assert not survivors(name, chosen(name, kernel_text(envs.get(name))[1])[-1:])


@pytest.mark.mutants
@pytest.mark.parametrize("name", envs.names())
def test_all_mutants_are_killed(name):
    selection = chosen(name, kernel_text(envs.get(name))[1])
    assert len(selection) >= 15
    assert not survivors(name, selection)


# What draws for another purpose, and what drops a statement, in two files whose judges take a few
# seconds.
PLANTED = {
    "tools/draws.cu": "purpose",
    "train/advantages.cu": "dropped statement",
}


def test_a_sample_of_mutants_of_shared_kernels_is_killed():
    sample = []
    for file, kind in PLANTED.items():
        of_kind = [m for m in shared_mutation.chosen(file, 1000) if m.kind == kind and not m.equal]
        sample.append(of_kind[0])
    verdicts = shared_mutation.run(sample)
    assert [str(m) for m, v in zip(sample, verdicts, strict=True) if v == "survived"] == []


def test_judges_are_tests_that_exist():
    judges = sorted({name for names in shared_mutation.JUDGES.values() for name in names})
    collect = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *judges]
    done = run_python(*collect, cwd=shared_mutation.ROOT)
    assert done.returncode == 0, done.stderr


def test_survivors_of_environments_are_lines_that_exist():
    """A line that has changed is judged anew."""
    for name, before, _ in EQUIVALENT:
        lines = [line.strip() for line in kernel_text(envs.get(name))[1].splitlines()]
        assert before in lines, f"{name}: {before}"


def test_tags_name_mutants_of_their_lines():
    for path in shared_mutation.KERNELS.rglob("*.cu*"):
        text = path.read_text()
        lines, possible, count = text.splitlines(), defaultdict(set), Counter()
        for m in shared_mutation.mutants(str(path), text):
            count[m.line, m.kind] += 1
            possible[m.line] |= {m.kind, f"{m.kind} {count[m.line, m.kind]}"}
        for i, line in enumerate(lines, 1):
            if not line.lstrip().startswith("//"):
                assert shared_mutation.tags(lines, i - 1) <= possible[i], f"{path}:{i}"
            elif shared_mutation.TAG.search(line):
                assert not lines[i].lstrip().startswith("//"), f"{path}:{i}"


@pytest.mark.mutants
@pytest.mark.parametrize("file", shared_mutation.JUDGES)
def test_mutants_of_shared_kernels_are_killed(file):
    selection = shared_mutation.chosen(file, PER_FILE)
    verdicts = shared_mutation.run(selection)
    alive = [m for m, v in zip(selection, verdicts, strict=True) if v == "survived"]
    unknown = [str(m) for m in alive if not m.equal]
    assert not unknown, "\n".join((f"{len(unknown)} survive:", *unknown))  # pytest would cut a list
