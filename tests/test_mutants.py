"""The checker kills altered kernels: every mutant is caught but those listed here, with the reason why they are equal."""

import pytest
from mutation import chosen, run

from cupydrive import envs
from cupydrive.source import kernel_text

pytestmark = pytest.mark.checker
# (environment, the line before, the line after): why no check can see the difference.
LIMITS = "fallen = (math::abs(s.x) > p.x_limit) | (math::abs(s.theta) > p.theta_limit);"
EXACT = "differs only where a float lands on the limit exactly, which has probability 0"
ARRIVED = "arrived = s.position >= p.goal_position && s.velocity >= p.goal_velocity;"
WALL = "s.velocity = (s.position == p.min_position) & (s.velocity < 0.0f) ? 0.0f : s.velocity;  // the wall stops it"
AT_REST = "a car that the step has left at the wall does not move away from it: its velocity is 0 or less"
UP = "const bool up = -math::cos(s.theta1) - math::cos(s.theta2 + s.theta1) > p.goal_height;"
LEFT = "remaining += s.active[i];"
ZERO = "the sum is only compared with 0"
FARTHEST = "Distance nearest = ~(Distance)0;  // (squared distance, id): a tie goes to the lower id"
GREATER = "no distance of a grid is as great, with either bit"
CARS = ("mountain_car", "mountain_car_continuous")
EQUIVALENT = {
    **{(car, ARRIVED, ARRIVED.replace("position >=", "position >")): EXACT for car in CARS},
    **{(car, ARRIVED, ARRIVED.replace("velocity >=", "velocity >")): EXACT for car in CARS},
    **{(car, WALL, WALL.replace("<", "<=")): AT_REST for car in CARS},
    **{(car, WALL, WALL.replace("< 0.0f", "< (0.0f * 1.5f + 0.25f)")): AT_REST for car in CARS},
    ("acrobot", UP, UP.replace(">", ">=")): EXACT,
    ("tag_continuous", LEFT, LEFT.replace("+", "-")): ZERO,
    ("tag_grid", FARTHEST, FARTHEST.replace(")0", ")1")): GREATER,
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
    """The last two: the first are dropped syncs, which tests/test_check.py has, too."""
    assert not survivors(name, chosen(name, kernel_text(envs.get(name))[1])[-2:])


@pytest.mark.slow
@pytest.mark.parametrize("name", envs.names())
def test_all_mutants_are_killed(name):
    selection = chosen(name, kernel_text(envs.get(name))[1])
    assert len(selection) >= 30
    assert not survivors(name, selection)
