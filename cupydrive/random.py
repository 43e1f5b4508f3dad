"""Philox4x32-10 in NumPy: the same numbers as ``kernels/drive/random.cuh``, for the references.

Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section
3.3.

The table in ``random.cuh`` defines counters and purposes. This file implements it exactly.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cupydrive.errors import ParameterError

AGENTS, DRAWS = 2**16, 2**12  # maximum agents of one stream, and draws of each agent
RESET, DYNAMICS, ACTION, POLICY = 0, 1, 2, 3

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter: Sequence[npt.ArrayLike], key: tuple[int, int]) -> np.ndarray:
    """Return four words of Philox4x32-10.

    Args:
        counter: Four arrays (or ints) of 32-bit words that broadcast to one shape (...).
        key: Two 32-bit ints.

    Returns:
        uint32 array (..., 4).
    """
    c0, c1, c2, c3 = (
        c.astype(np.uint64) for c in np.broadcast_arrays(*(np.asarray(c) for c in counter))
    )
    k0, k1 = (int(k) for k in key)
    for _ in range(10):
        product0, product2 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product2 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            product2 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def unit(words: np.ndarray) -> np.ndarray:
    """Return float32 in [0, 1), multiples of 2**-24, from uint32 ``words``."""
    return (np.asarray(words) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def below(words: np.ndarray, n: npt.ArrayLike) -> np.ndarray:
    """Map random words to integers.

    Args:
        words: uint32 array.
        n: Exclusive upper bound, a number or an array that broadcasts.

    Returns:
        int32 in [0, n), of the broadcast shape.
    """
    return ((np.asarray(words).astype(np.uint64) * np.asarray(n, np.uint64)) >> _SHIFT).astype(
        np.int32
    )


class RandomStream:
    """The random stream of many environments, each at its own episode and step.

    Args:
        seed: Random seed in [0, 2**64).
        env: (N,) global environment ids.
        episode: (N,) or int, number of the episode.
        step: (N,) or int, the step word of the purpose.
        purpose: RESET, DYNAMICS, ACTION or POLICY.
    """

    def __init__(
        self,
        seed: int,
        env: npt.ArrayLike,
        episode: npt.ArrayLike,
        step: npt.ArrayLike = 0,
        purpose: int = RESET,
    ) -> None:
        self.key = (int(seed) & 0xFFFFFFFF, (int(seed) >> 32) & 0xFFFFFFFF)
        self.env, self.episode, self.step, self.purpose = env, episode, step, purpose

    def bits(self, num_agents: int = 1, draw: int = 0, first_agent: int = 0) -> np.ndarray:
        """Return the words of ``env.random.bits(agent, draw)`` of each environment and agent.

        Args:
            num_agents: Number of agents.
            draw: Index of the draw, in [0, 4096).
            first_agent: First agent, in [0, 65536).

        Returns:
            (N, num_agents, 4) uint32.

        Raises:
            ParameterError: If an agent is outside [0, 65536), or ``draw`` outside [0, 4096). Such
                numbers would repeat those of another agent or draw.
        """
        last = first_agent + num_agents - 1
        for name, first, value, limit in (
            ("agent", first_agent, last, AGENTS),
            ("draw", draw, draw, DRAWS),
        ):
            if first < 0 or value >= limit:
                raise ParameterError(
                    f"random numbers: got {name} {value if value >= limit else first}, expected 0 "
                    f"to {limit - 1}"
                )
        agents = np.arange(first_agent, first_agent + num_agents)
        packed = np.uint64(draw << 20 | self.purpose << 16) | agents.astype(np.uint64)

        def column(x: npt.ArrayLike) -> np.ndarray:
            return np.atleast_1d(np.asarray(x))[:, None]

        return philox(
            (column(self.env), column(self.episode), column(self.step), packed[None, :]), self.key
        )

    def uniform(self, num_agents: int = 1, draw: int = 0) -> np.ndarray:
        """Return the numbers of ``env.random.uniform4(agent, draw)``.

        Args:
            num_agents: Number of agents.
            draw: Index of the draw, in [0, 4096).

        Returns:
            (N, num_agents, 4) float32 in [0, 1).
        """
        return unit(self.bits(num_agents, draw))

    def fixed(self) -> "RandomStream":
        """Return the stream of ``env.fixed_random()``, equal in all environments and episodes."""
        zeros = np.zeros_like(np.atleast_1d(np.asarray(self.env)))
        fixed = RandomStream(0, zeros, zeros, self.step, self.purpose)
        fixed.key = self.key
        return fixed


def random_actions(
    seed: int,
    env: npt.ArrayLike,
    time: npt.ArrayLike,
    num_agents: int,
    sample: Callable[[np.ndarray, int], np.ndarray],
    heads: int,
    first_agent: int = 0,
) -> np.ndarray:
    """Return the actions that a fused rollout draws at step ``time`` since ``reset(seed)``.

    Args:
        seed: 64-bit seed.
        env: (N,) global environment ids.
        time: (N,) or int, steps since ``reset(seed)``.
        num_agents: Agents of the group.
        sample: ``sample(words, head)`` turns uint32 words into actions of one head.
        heads: Action numbers per agent.
        first_agent: Number of agents in the groups before this one.

    Returns:
        (N, num_agents, heads) int32 or float32.
    """
    env = np.atleast_1d(np.asarray(env))
    time = np.broadcast_to(np.asarray(time, np.int64), env.shape)
    stream = RandomStream(seed, env, 0, time // 4, ACTION)
    columns = []
    for head in range(heads):
        words = stream.bits(num_agents, head, first_agent)
        word = np.take_along_axis(words, (time % 4)[:, None, None], axis=2)[..., 0]
        columns.append(sample(word, head))
    return np.stack(columns, axis=-1)
