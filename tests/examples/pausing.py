"""A random game whose agents pause and leave, the one-step errors of its steps, and an environment
of two turns.
"""

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

import cupydrive as cd


def stream(rng, steps, n, agents):
    """Return a random game of many episodes, in which agents take turns and leave, and rewards come
    at any time.
    """
    terminated, truncated = rng.random((steps, n)) < 0.04, rng.random((steps, n)) < 0.03
    truncated &= ~terminated
    active, left = rng.random((steps, n, agents)) < 0.5, np.zeros((steps, n, agents), bool)
    acted, gone = np.zeros((n, agents), bool), np.zeros((n, agents), bool)
    for t in range(steps):
        goes_on = ~(terminated | truncated)[t][:, None]
        active[t] &= ~gone
        acted |= active[t]
        left[t] = acted & ~gone & (rng.random((n, agents)) < 0.1)  # some while they pause
        acted, gone = acted & goes_on, (gone | left[t]) & goes_on
    reward, value, final = (rng.normal(size=(steps, n, agents)) for _ in "rvf")
    return {
        k: v.astype(np.float32) for k, v in dict(reward=reward, value=value, final=final).items()
    } | dict(terminated=terminated, truncated=truncated, active=active, left=left)


def one_step_errors(game, gamma):
    """Return what each active step is worth by definition: all rewards until the agent's next one,
    and the value there.

    NaN where the end of the stream comes first, and where the time limit cuts an episode that the
    agent has left.
    """
    out = np.full(game["reward"].shape, np.nan)
    steps = len(out)
    for t, e, i in zip(*np.nonzero(game["active"]), strict=True):
        total, gone = 0.0, False
        for k in range(t, steps):
            if k > t and game["active"][k, e, i]:
                out[t, e, i] = total + gamma * game["value"][k, e, i] - game["value"][t, e, i]
                break
            total, gone = total + game["reward"][k, e, i], gone or game["left"][k, e, i]
            if game["truncated"][k, e] and gone:
                break
            if game["terminated"][k, e] or game["truncated"][k, e]:
                after = gamma * game["final"][k, e, i] if game["truncated"][k, e] else 0.0
                out[t, e, i] = total + after - game["value"][t, e, i]
                break
    return out


def row_weights(game: dict[str, np.ndarray], steps: int) -> np.ndarray:
    """Return the weight of each row in rollouts of ``steps``, (T, N, C): 1 in active steps, 2 in
    pauses, otherwise 0.

    After an agent has left its rows have weight 0. Once a rollout has had a reward after leaving,
    leaving begins a pause.
    """
    out = game["active"].astype(np.uint8)
    total, n, agents = out.shape
    for e, i in np.ndindex(n, agents):
        acted = left = gone = paid = pays = False
        for t in range(total):
            if t % steps == 0:
                pays = pays or paid
            acted = acted or game["active"][t, e, i]
            if not game["active"][t, e, i] and acted and not gone:
                out[t, e, i] = 2
            paid = paid or (left and game["reward"][t, e, i] != 0)
            left = left or game["left"][t, e, i]
            gone = gone or (game["left"][t, e, i] and not pays)
            if game["terminated"][t, e] or game["truncated"][t, e]:
                acted = left = gone = False
    return out


@dataclass(frozen=True)
class Params:
    max_episode_steps: int = cd.param(10, "Time limit.", low=1)


# An agent acts, and is rewarded for it in the next step, in which it is inactive or, with LEAVES 1,
# has left.
TURNS = """
struct Params {};
struct State { int turn; float chosen; };
#include "drive/env.cuh"
DEVICE void reset(Env& env) { if (env.team.leader()) env.state = {0, 0.0f}; }
DEVICE bool step(Env& env) {
  if (!env.team.leader()) return false;
  State& s = env.state;
  env.actor.active(0) = s.turn == 0;
  env.actor.left(0) = LEAVES && s.turn == 0;
  s.turn += 1;
  if (s.turn == 1) s.chosen = (float)env.actor.action(0);
  if (s.turn == 2) env.actor.reward(0) = 1.0f - (s.chosen - 1.0f) * (s.chosen - 1.0f);
  return s.turn == 2;
}
DEVICE void observe(Env& env) { if (env.team.leader()) env.actor.obs(0)[0] = (float)env.state.turn; }
"""


def turns(space: spaces.Space, leaves: bool = False) -> cd.EnvSpec:
    """Return the environment of two turns, in which action 1 earns 1 and action 0 earns 0."""
    kind = "box" if isinstance(space, spaces.Box) else "discrete"
    fields = cd.Field("turn", "i4"), cd.Field("chosen")
    group = cd.Group("actor", 1, 1, space, leaves=True)
    kernel = TURNS.replace("LEAVES", str(int(leaves)))
    return cd.EnvSpec(
        f"turns_{kind}_{leaves:d}",
        Params,
        lambda p: fields,
        lambda p: (group,),
        "truncates",
        kernel=kernel,
    )
