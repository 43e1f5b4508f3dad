"""Episodes that are over may be stepped on, as a recording of episodes of several lengths does."""

import numpy as np
import pytest

from cupydrive import envs
from cupydrive.checks.comparison import draw_actions
from cupydrive.executors.host import HostExecutor
from cupydrive.simulation.batch import Batch

N, STEPS = 16, 400


@pytest.mark.parametrize("name", envs.names())
def test_steps_after_the_end_stay_within_their_memory(name):
    spec, rng = envs.get(name).with_made_up_tables(), np.random.default_rng(0)
    batch = Batch(spec, N, spec.make_params(**spec.cases[0]), HostExecutor(debug=True))
    batch.reset(0)
    for _ in range(STEPS):
        drawn = draw_actions(batch.groups, rng, N)
        actions = [np.ascontiguousarray(drawn[group.name]) for group in batch.groups]
        batch.step([array.ctypes.data for array in actions], autoreset=False)
