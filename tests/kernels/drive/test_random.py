"""Philox4x32-10: published vectors, in NumPy and in C; ranges and frequencies; streams that
differ.
"""

import numpy as np
import pytest
from gymnasium import spaces

from cupydrive.envs import register
from cupydrive.errors import ParameterError, SpecError
from cupydrive.random import ACTION, DYNAMICS, RESET, RandomStream, below, philox, unit
from cupydrive.simulation.batch import Batch
from cupydrive.spec import Group

pytestmark = pytest.mark.optimised

# Salmon et al. 2011, the reference implementation's known answers: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.quick(3)
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_numpy_gives_the_known_answers(counter, key, words):
    assert tuple(int(w) for w in philox(counter, key)) == words


PYTHON = """
from dataclasses import dataclass
import numpy as np
from gymnasium import spaces
from cupydrive.spec import EnvSpec, Field, Group, Observation, Reference, StepResult, param

@dataclass(frozen=True)
class Params:
    max_episode_steps: int = param(5, "Limit.", low=1)

SPEC = EnvSpec("philox_words", Params, lambda p: (Field("words", "u4", (KNOWN, 4)),),
               lambda p: (Group("nobody", 1, 1, spaces.Discrete(2)),), "truncates", Reference(print, print, print, print))
""".replace("KNOWN", str(len(KNOWN)))


def test_c_gives_the_known_answers():
    """The counter's words are set by hand, as a draw of agent 0 would pack them."""
    fill = "\n".join(
        f"  {{ Random r{{{key[0]}ull | {key[1]}ull << 32, {c[0]}u, {c[1]}u, {c[2]}u, {c[3] >> 16 & 15}u}};"
        f" const auto b = r.bits({c[3] & 0xFFFF}u, {c[3] >> 20}u);"
        f" u32* w = env.state.words[{i}]; w[0] = b.x; w[1] = b.y; w[2] = b.z; w[3] = b.w; }}"
        for i, (c, key, _) in enumerate(KNOWN)
    )
    kernel = (
        f"struct Params {{}};\nstruct State {{ u32 words[{len(KNOWN)}][4]; }};\n"
        + '#include "drive/env.cuh"\nDEVICE void reset(Env& env) {\n'
        + fill
        + "\n}\nDEVICE bool step(Env&) { return false; }\nDEVICE void observe(Env& env) { env.nobody.obs(0)[0] = 0.0f; }\n"
    )
    batch = Batch(register(PYTHON, kernel), 1)
    batch.reset(0)
    assert batch.state["words"][0].tolist() == [list(words) for _, _, words in KNOWN]


def test_uniform_and_below_stay_in_range_and_are_even():
    words = RandomStream(1, np.arange(10_000), 0).bits(10).ravel()  # 400,000 words
    u = unit(words)
    assert u.dtype == np.float32 and u.min() >= 0 and u.max() < 1
    assert unit(np.array([0xFFFFFFFF], np.uint32))[0] < 1
    for n in (2, 5, 21, 1000):
        counts = np.bincount(below(words, n), minlength=n)
        assert len(counts) == n
        expected = len(words) / n
        chi_square = np.sum((counts - expected) ** 2 / expected)
        assert chi_square < (n - 1) + 5 * np.sqrt(2 * (n - 1))  # mean and five standard deviations


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("draw", "words"),
    [
        ({"num_agents": 65_537}, "got agent 65536, expected 0 to 65535"),
        ({"num_agents": 2, "first_agent": 65_535}, "got agent 65536, expected 0 to 65535"),
        ({"first_agent": -1}, "got agent -1, expected 0 to 65535"),
        ({"draw": 4096}, "got draw 4096, expected 0 to 4095"),
        ({"draw": -1}, "got draw -1, expected 0 to 4095"),
    ],
)
def test_numbers_of_another_stream_are_refused(draw, words):
    stream = RandomStream(1, [0], 0)
    with pytest.raises(ParameterError, match=words):
        stream.bits(**draw)
    assert stream.bits(1, 4095, 65_535).shape == (1, 1, 4) and stream.uniform(65_536).shape == (
        1,
        65_536,
        4,
    )


def test_streams_of_other_env_agent_episode_step_purpose_and_draw_differ():
    base = RandomStream(7, [3], [2], 5, DYNAMICS).bits(1)[0, 0].tolist()
    others = [
        RandomStream(8, [3], [2], 5, DYNAMICS).bits(1)[0, 0],
        RandomStream(7 | 1 << 40, [3], [2], 5, DYNAMICS).bits(1)[0, 0],
        RandomStream(7, [4], [2], 5, DYNAMICS).bits(1)[0, 0],
        RandomStream(7, [3], [1], 5, DYNAMICS).bits(1)[0, 0],
        RandomStream(7, [3], [2], 6, DYNAMICS).bits(1)[0, 0],
        RandomStream(7, [3], [2], 5, RESET).bits(1)[0, 0],
        RandomStream(7, [3], [2], 5, ACTION).bits(1)[0, 0],
        RandomStream(7, [3], [2], 5, DYNAMICS).bits(2)[0, 1],
        RandomStream(7, [3], [2], 5, DYNAMICS).bits(1, draw=1)[0, 0],
    ]
    seen = {tuple(base), *(tuple(o.tolist()) for o in others)}
    assert len(seen) == len(others) + 1


def test_an_agent_has_no_more_heads_than_random_actions_tell_apart():
    assert Group("typist", 1, 1, spaces.MultiDiscrete([2] * 4096)).heads == 4096
    with pytest.raises(SpecError, match="is too large, expected at most 4,096 heads"):
        Group("typist", 1, 1, spaces.MultiDiscrete([2] * 4097))
