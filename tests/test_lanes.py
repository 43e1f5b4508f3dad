"""On the CPU environments of one agent step side by side; lanes without an environment run one that is there."""

import subprocess
import sys

import pytest

# Doubles until 100, which ends the task: a state that nobody reaches would never leave the loop.
PROGRAM = """
import point
import cupydrive as cd

walk = "s.x = 2.0f * (s.x < 0.0f ? -s.x : s.x) + 0.1f; while (s.x > 1000.0f) s.x += 1.0f - 1.0f;"
text = point.KERNEL.replace("s.x += s.v;", walk)
text = text.replace("return false;", "return env.state.x > 100.0f;")
env = cd.make(cd.register(point.PYTHON, text), {n}, device="cpu", max_episode_steps=1000)
env.reset(seed=0)
print(env.rollout(200).obs[..., 0].max().item() < 1000)
"""


@pytest.mark.parametrize("n", [1, 15, 17])
def test_no_lane_leaves_the_states_of_the_environment(n):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(n=n)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=__file__.rsplit("/", 1)[0],
    )
    assert done.stdout == "True\n", done.stderr
