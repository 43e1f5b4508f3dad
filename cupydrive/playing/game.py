"""A game: one environment in which a person plays one agent by keys, step by step, episode after episode.

Letters: C agents of a group, H action heads.
"""

from dataclasses import asdict, fields

import numpy as np
import torch

from cupydrive import envs
from cupydrive.errors import OrderError, ParameterError
from cupydrive.executors import checked_device, choose, executor
from cupydrive.executors.interop import as_torch
from cupydrive.executors.modes import ordinary_modes
from cupydrive.inputs.arguments import checked_bool, checked_choice, checked_int, checked_mapping, shown
from cupydrive.playing.given import require_players, unwrapped
from cupydrive.playing.keyboard import Keyboard, KeyboardPlayer, keys_of, seat
from cupydrive.playing.players import PLAYERS, Heuristic, Random
from cupydrive.playing.recording import Moment, Recording, action_dtype, outcome
from cupydrive.playing.rollout import Rollout
from cupydrive.playing.threads import acting_threads
from cupydrive.protocols import Policies
from cupydrive.simulation.batch import Batch

PERSON = "you"  # what a recording calls a person
SLOWEST, FASTEST = 10, 30  # steps a second


class Game:
    """One environment in which a person plays one agent. Episode k starts as environment 0 does after ``reset(seed + k)``.

    Args:
        what: Name of an environment, path of its Python file, ``EnvSpec``, ``VectorEnv`` (another copy of it), or ``Run``.
        agent: Whom the person plays: ``"runner"``, ``"tagger 2"``; None: the first agent of the first group with keys.
        others: Who plays the others, also those of the person's own group: ``"heuristic"``, ``"random"``, or settings by group
            as for ``evaluate``. By default a run's own policies, or the heuristic, or random actions where there is none.
        seed: Of starts and actions.
        greedy: A run's policies take the likeliest action.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``; a run's own device.
        **params: Parameters of the environment; a run's own are what is not given.

    Attributes:
        spec: ``EnvSpec``.
        params: Parameters of this episode.
        group: Name of the person's group.
        agent: Number of the person's agent in it.
        episode: Episodes begun so far.
        moment: ``Moment`` of the one environment, after the latest step.

    Raises:
        ParameterError: If an argument is wrong, or the environment has no keys.
    """

    def __init__(self, what, agent=None, others=None, *, seed=10_000, greedy=True, device="auto", **params):
        what, device, params = unwrapped("play", what, device, params)
        device = checked_device(device, "play")
        self._run = what if isinstance(what, Policies) else None
        self._greedy = checked_bool("play", "greedy", greedy)
        self.seed = checked_int("play", "seed", seed, 0, 2**64 - 1)
        self.spec = self._run.spec if self._run else envs.get(what)
        self.spec.require_known(params, Game)
        own = asdict(self._run.params) if self._run else {}
        made = self.spec.make_params(**{**own, **params})
        self._executor = executor(self._run.device if self._run else choose(device)[0])
        self._agent, self._others = agent, self._checked_others(made, others)
        self.episode, self.params, self._next = 0, None, made
        self.begin()

    def _checked_others(self, params, others):
        """Return settings by group of who plays but the person."""
        groups = self.spec.groups(params)
        if others is not None and self.spec.one_agent(params):
            raise ParameterError(f"play: others = {shown(others)}; nobody else plays in {self.spec.name}: leave it out")
        if isinstance(others, str):
            player = PLAYERS[checked_choice("play", "others", others, PLAYERS)]
            return {g.name: player() for g in groups}
        given = {} if others is None else checked_mapping("play", "others", others)
        require_players(self.spec, groups, "others", given)
        if self._run is not None:
            return {g.name: self._run.frozen(g.name, self._greedy) for g in groups} | given
        return {g.name: Heuristic() if self.spec.heuristic else Random() for g in groups} | given

    # ---- parameters ----

    def change(self, **params):
        """Set parameters that the next episode begins with.

        Raises:
            ParameterError: If they are wrong, or whoever plays does not fit; nothing has changed then.
        """
        self.spec.require_known(params)
        made = self.spec.make_params(**{**asdict(self._next), **params})
        seat(self.spec, made, self._agent)
        if self._run is not None:
            for mine, theirs in zip(self.spec.groups(self._run.params), self.spec.groups(made), strict=True):
                if (mine.obs_dim, mine.action_space) != (theirs.obs_dim, theirs.action_space):
                    raise ParameterError(
                        f"play: with {params} {theirs.name!r} observes {theirs.obs_dim} numbers and acts in "
                        f"{theirs.action_space}; the run's policies know {mine.obs_dim} and {mine.action_space}"
                    )
        self._next = made

    def choices(self):
        """Return which parameters may be changed, and within which limits: by name a dictionary that JSON can hold."""
        return {f.name: found for f in fields(self.spec.params) if (found := choice(f, getattr(self.params, f.name)))}

    # ---- episodes ----

    def begin(self):
        """Begin an episode, with the parameters that ``change`` has set; return its first ``Moment``."""
        if self.params != self._next:
            self._sit(self._next)
        with self._rollout.stream():
            self._batch.reset((self.seed + self.episode) % 2**64)
        self._rollout.terminated[0] = True  # memories of policies end here
        self.episode += 1
        self._player.chosen = self.keyboard.first
        self._taken = {g.name: [] for g in self._batch.groups}
        self._returns = {g.name: np.zeros((1, g.count), np.float32) for g in self._batch.groups}
        self.moment = self._moment(0, False)
        return self.moment

    def _sit(self, params):
        """Make the environment with other parameters, and everybody who plays in it."""
        group, agent = seat(self.spec, params, self._agent)
        groups = {g.name: g for g in self.spec.groups(params)}
        keyboard = Keyboard(groups[group], keys_of(self.spec, params)[group])
        alone = groups[group].count == 1
        players = {
            name: self._others[name].player(self.spec, g) for name, g in groups.items() if not (alone and name == group)
        }
        person = players[group] = KeyboardPlayer(agent, keyboard, players.get(group))
        batch = Batch(self.spec, 1, params, self._executor)
        batch.reset(self.seed)
        rollout = Rollout(batch, players, 1, final_obs=False)
        self.group, self.agent, self.keyboard, self._player = group, agent, keyboard, person
        self._batch, self._rollout, self.params = batch, rollout, params

    def step(self, pressed=()):
        """Take one step with these keys down, in the order in which they went down; return the ``Moment`` after it.

        Raises:
            OrderError: If the episode is over; ``begin`` another.
        """
        if self.moment.over[0]:
            raise OrderError("step() after the end of an episode; call begin() first")
        rollout, batch = self._rollout, self._batch
        self._player.chosen = self.keyboard.action(pressed, self._player.chosen)
        modes = ordinary_modes(rollout.device.type, tf32=False)
        with modes, torch.no_grad(), rollout.stream(), acting_threads(rollout):
            for rows, current in ((rollout.obs, batch.current_obs), (rollout.action_mask, batch.current_mask)):
                for name, array in current.items():
                    rows[name][0].copy_(as_torch(array))
            for player in rollout.players:
                player.act(rollout, 0)
            written = batch.step([rollout.action[g.name][0].data_ptr() for g in batch.groups], autoreset=False)
            over = bool(as_torch(written.terminated)[0] | as_torch(written.truncated)[0])
            rollout.terminated[0] = over
            said = outcome(batch, written)
        for name, actions in self._taken.items():
            actions.append(rollout.action[name][0].cpu().numpy().copy())
        for name, reward in said["reward"].items():
            self._returns[name] += reward
        self.moment = self._moment(self.moment.step + 1, over, **said)
        return self.moment

    def _moment(self, step, over, **said):
        states = self._batch.get_state()["state"]
        returns = {name: array.copy() for name, array in self._returns.items()}
        action = {name: actions[-1] for name, actions in self._taken.items() if actions}
        return Moment(step, states, np.array([step]), np.array([over]), returns, action, **said)

    @property
    def usual_pace(self):
        """Steps a second, as near to those of the environment's videos as a person can play."""
        return min(max(self.spec.render_fps, SLOWEST), FASTEST)

    @property
    def help(self):
        """What the keys do, in one line."""
        return str(self.keyboard)

    @property
    def players(self):
        """Who plays each group, in words."""
        words = {name: getattr(who, "brief", str(who)) for name, who in self._others.items()}
        lone = [g.name for g in self._batch.groups if g.count == 1]
        return {
            name: (PERSON if name in lone else f"{PERSON} and {who}") if name == self.group else who
            for name, who in words.items()
        }

    @property
    def recording(self):
        """The ``Recording`` of this episode so far: ``cupydrive.render`` makes a video of it.

        Raises:
            OrderError: Before its first step.
        """
        if not self.moment.step:
            raise OrderError("recording of an episode without a step; play it first")
        groups = {g.name: g for g in self._batch.groups}
        action = {name: np.stack(taken).astype(action_dtype(groups[name])) for name, taken in self._taken.items()}
        length, seed = np.array([self.moment.step], np.int32), (self.seed + self.episode - 1) % 2**64
        about = {"origin": envs.origin(self.spec), **self.spec.about_tables(self.params)}
        return Recording(self.spec, self.params, seed, self.players, length, action, **about)

    def __repr__(self):
        agent = self.group if self._rollout.action[self.group].shape[2] == 1 else f"{self.group} {self.agent}"
        return f"<Game {self.spec.name}: you play {agent}; episode {self.episode}, step {self.moment.step}>"


def checked_pace(where, fps):
    """Return ``fps``, the steps a second that a person plays at."""
    return checked_int(where, "fps", fps, SLOWEST, FASTEST)


def choice(about, value):
    """Return what a person may choose for a parameter, a dictionary that JSON can hold, or None: nothing.

    Args:
        about: Its dataclass field, made by ``param``.
        value: Its value now.
    """
    meta, default = about.metadata, about.default
    found = {"value": value, "help": meta["help"], "unit": meta["unit"]}
    if isinstance(default, bool):
        return found | {"kind": "bool"}
    if isinstance(default, str):
        return found | {"kind": "choice", "choices": list(meta["choices"])}
    if isinstance(default, tuple):
        return None
    low, high = meta["vary"] or ((min(0, 2 * default), max(0, 2 * default)) if default else (-1, 1))
    low, high = max(min(low, value), meta["low"]), min(max(high, value), meta["high"])
    return found | {"kind": type(default).__name__, "low": low, "high": high} if low < high else None
