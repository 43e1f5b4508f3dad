"""A game: a person controls one agent of an environment with the keyboard, in real time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import numpy as np
import torch
from annotated_types import Ge, Le

from cupydrive.drawing.frames import score
from cupydrive.errors import ParameterError
from cupydrive.executors import executor
from cupydrive.executors.interop import as_torch
from cupydrive.executors.modes import ordinary_modes
from cupydrive.inputs.arguments import checked_choice, checked_str, shown
from cupydrive.inputs.keys import ARROWS, NONE, PAUSE, QUIT, RESTART, action_by_head
from cupydrive.inputs.validation import Count
from cupydrive.playing.config import EvalConfig
from cupydrive.playing.recording import Moment, Recording, action_dtype, outcome, record
from cupydrive.playing.rollout import Rollout
from cupydrive.playing.torch_settings import acting_threads
from cupydrive.protocols import EnvParams, Player
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec, Group


class KeyboardPlayer:
    """Controls one agent of a group by keys. Another player controls the remaining agents.

    Args:
        group: The ``Group``.
        agent: Index of the agent in it.
        keys: The group's keys, as ``Display.keys`` returns them.
        others: ``Player`` of the other agents. None if there are none.

    Attributes:
        actions: H choices by key. None keeps the previous choice of a head.
        action: (H,) action that the agent takes next.
    """

    def __init__(
        self, group: Group, agent: int, keys: dict[str, Any], others: Player | None
    ) -> None:
        self.group, self.agent, self.others = group, agent, others
        self.actions = {
            key: action_by_head("keys", key, action, group) for key, action in keys.items()
        }
        self.reset()

    def reset(self) -> None:
        """Reset the action at the beginning of an episode."""
        first = np.clip(0, *self.group.action_bounds)
        self.action = first.astype(self.group.action_dtype)

    def choose(self, down: Sequence[str]) -> None:
        """Set the next action from the pressed keys.

        Args:
            down: Pressed keys in the order of pressing. For each head the last one decides. Unknown
                keys have no effect.
        """
        for key in (NONE, *(key for key in down if key in self.actions)):
            for head, value in enumerate(self.actions[key]):
                if value is not None:
                    self.action[head] = value

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``."""
        if self.others is not None:
            self.others.begin(rollout, group)

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t.

        If a mask forbids the person's choice, the first allowed choice is taken.
        """
        if self.others is not None:
            self.others.act(rollout, t)
        action, mask = rollout.action[self.group.name][t], rollout.mask(self.group, t)
        if mask is not None:
            mine = mask[0, self.agent].cpu().numpy()
            for head, allowed in enumerate(np.split(mine, self.group.first_choices[1:])):
                if allowed.any() and not allowed[int(self.action[head])]:
                    self.action[head] = allowed.argmax()
        action[:, self.agent] = torch.from_numpy(self.action).to(action.device)

    def module(self, rollout: Rollout, group: Group) -> NoReturn:
        """Raise ``ParameterError``, since a person has no module."""
        raise ParameterError(f"group {group.name!r} is played by a person")

    def __str__(self) -> str:
        """Describe the action of each key in one line."""
        keys = [
            f"{ARROWS.get(key, key) or 'no key'} {action_text(action)}"
            for key, action in self.actions.items()
        ]
        return f"actions: {', '.join(keys)}"


def action_text(action: tuple[float | None, ...]) -> str:
    """Format an action, with a number for each head."""
    heads = ["as before" if value is None else f"{value:.4g}" for value in action]
    return heads[0] if len(heads) == 1 else f"({', '.join(heads)})"


def find_agent(
    spec: EnvSpec, params: EnvParams, agent: str | None
) -> tuple[str, int, dict[str, Any]]:
    """Return (group, index, keys) of the agent that a person plays.

    Args:
        spec: ``EnvSpec``.
        params: Its parameters.
        agent: ``"runner"`` for the first agent of the group, or ``"tagger 2"``. Defaults to the
            first agent of the first group with keys.

    Raises:
        ParameterError: If the agent does not exist, or has no keys.
    """
    keys = {} if spec.display.keys is None else spec.display.keys(params)
    groups = {g.name: g for g in spec.groups(params) if len(keys.get(g.name, ())) > 1}
    if not groups:
        raise ParameterError(
            f"play: {spec.name} has no keys for a person to play by. Give its EnvSpec "
            f"display=Display(keys=...)"
        )
    agent = next(iter(groups)) if agent is None else checked_str("play", "agent", agent)
    name = checked_choice("play", "agent", agent.partition(" ")[0], groups)
    agents = [f"{name} {k}" for k in range(groups[name].count)]
    if agent not in (name, *agents):
        raise ParameterError(
            f"play: agent = {shown(agent)}, expected {name!r}, or {agents[0]!r} to {agents[-1]!r}"
        )
    return name, 0 if agent == name else agents.index(agent), dict(keys[name])


AFTER_THE_END = 1.2  # seconds between two episodes
LEAVE = "Escape"  # pauses, but never resumes


@dataclass(frozen=True, kw_only=True)
class GameConfig(EvalConfig):
    """Configuration of a game. Further arguments are those of ``EvalConfig``.

    Args:
        agent: The person's agent, such as ``"runner"`` or ``"tagger 2"``. Defaults to the first
            agent with keys.
        fps: Steps per second. Defaults to the environment's ``Display.fps``, clipped to 10 to 30.
        episodes: Number of episodes. Defaults to no limit.
    """

    agent: str | None = None
    fps: Annotated[int, Ge(1), Le(60)] | None = None
    episodes: Count | None = None  # type: ignore[assignment]


class Game:
    """One environment in which a person controls one agent.

    Episode k has the initial state of environment 0 after ``reset(seed + k)``. The game starts
    paused. A front end calls ``press`` for each key and ``tick`` after ``wait`` seconds, and shows
    ``moment`` and ``text``.

    Args:
        config: ``GameConfig``.

    Raises:
        ParameterError: If the environment has no keys, or lacks the agent of ``config``.

    Attributes:
        spec: ``EnvSpec``.
        params: Parameters of the environment.
        group: Name of the person's group.
        agent: Index of the person's agent in it.
        player: ``KeyboardPlayer`` of the person's group.
        players: Description of each group's player, by group.
        fps: Steps per second.
        episode: Number of episodes begun.
        moment: ``Moment`` of the environment after the latest step.
        scores: Steps and returns of each finished episode, as text.
        running: Whether steps are taken. False while the game is paused.
        ended: Whether the person has quit, or the last episode has ended.
    """

    def __init__(self, config: GameConfig) -> None:
        self.config, self.spec, self.params = config, config.spec, config.params
        self.fps = min(max(self.spec.display.fps, 10), 30) if config.fps is None else config.fps
        self.group, self.agent, keys = find_agent(self.spec, self.params, config.agent)
        groups, settings = {g.name: g for g in self.spec.groups(self.params)}, dict(config.policies)
        self.players = {name: getattr(each, "brief", str(each)) for name, each in settings.items()}
        if groups[self.group].count == 1:
            self.players[self.group] = "you"
            del settings[self.group]
        else:
            self.players[self.group] = f"you and {self.players[self.group]}"
        playing = {name: each.player(self.spec, groups[name]) for name, each in settings.items()}
        self.player = KeyboardPlayer(groups[self.group], self.agent, keys, playing.get(self.group))
        self._batch = Batch(self.spec, 1, self.params, executor(config.device))
        self._batch.reset(config.seed)
        playing[self.group] = self.player
        self._rollout = Rollout(self._batch, playing, 1, final_obs=False)
        self.episode, self.running, self.ended = 0, False, False
        self.scores: list[str] = []
        self._finished: Recording | None = None
        self._due = 0.0
        self.begin()

    # ---- the loop ----

    def press(self, key: str, now: float) -> None:
        """Handle a pressed key: a command, or any key that starts or resumes the game.

        Args:
            key: Name of the key in browsers, such as ``"ArrowLeft"``, ``"a"`` or ``" "``.
            now: Time in seconds of an arbitrary clock.
        """
        if self.ended:
            return
        if key == QUIT:
            self.ended, self.running = True, False
        elif key == LEAVE or (key == PAUSE and self.running):
            self.running = False
        else:
            if key == RESTART:
                self.begin()
            if not self.running:
                self.running, self._due = True, now

    def tick(self, now: float, down: Sequence[str]) -> bool:
        """Take a step or begin the next episode if it is due.

        Args:
            now: Time in seconds of the clock of ``press``.
            down: Pressed keys in the order of pressing.

        Returns:
            Whether there is a new moment.
        """
        if not self.running or now < self._due:
            return False
        late = now - self._due > 1 / self.fps
        self._due = (now if late else self._due) + 1 / self.fps  # missed steps are not made up for
        if self.moment.over[0]:
            self.begin()
        elif self.step(down).over[0]:
            self.scores.append(f"{self.moment.step} steps, {score(self.moment, 0)}")
            self._finished, self._due = self._record(), now + AFTER_THE_END
            self.ended = len(self.scores) == self.config.episodes
            self.running = not self.ended
        return True

    def wait(self, now: float) -> float | None:
        """Return the seconds until ``tick`` is due, or None if the game is paused or has ended."""
        return max(0.0, self._due - now) if self.running else None

    # ---- the simulation ----

    def begin(self) -> None:
        """Begin an episode."""
        with self._rollout.stream():
            self._batch.reset(self.config.seed + self.episode)
        self._rollout.terminated[0] = True  # resets the hidden states of policies
        self.episode += 1
        self.player.reset()
        self._actions: list[dict[str, np.ndarray]] = []  # by step
        states, over = self._batch.get_state()["state"], np.array([False])
        returns = {g.name: np.zeros((1, g.count), np.float32) for g in self._batch.groups}
        self.moment = Moment(0, states, np.array([0]), over, returns)

    def step(self, down: Sequence[str] = ()) -> Moment:
        """Take one step with these pressed keys, and return the ``Moment`` after it.

        The episode must not be over.
        """
        rollout, batch = self._rollout, self._batch
        self.player.choose(down)
        modes = ordinary_modes(rollout.device.type, tf32=False)
        with modes, torch.no_grad(), rollout.stream(), acting_threads(rollout):
            rollout.carry_obs()
            rollout.carry_rows()
            rollout.act(0)
            actions = [rollout.action[g.name][0].data_ptr() for g in batch.groups]
            written = batch.step(actions, autoreset=False)
            over = as_torch(written.terminated) | as_torch(written.truncated)
            rollout.terminated[0] = over
            found = outcome(batch, written)
        action = {name: rows[0].cpu().numpy().copy() for name, rows in rollout.action.items()}
        self._actions.append(action)
        returns = {name: x + found["reward"][name] for name, x in self.moment.returns.items()}
        step, states, over = self.moment.step + 1, batch.get_state()["state"], over.cpu().numpy()
        self.moment = Moment(step, states, np.array([step]), over, returns, action, **found)
        return self.moment

    # ---- the results ----

    @property
    def recording(self) -> Recording | None:
        """``Recording`` of the last finished episode, or of the unfinished first one.

        It is None before the first step.
        """
        return self._record() if self._finished is None and self.moment.step else self._finished

    def _record(self) -> Recording:
        action = {}
        for g in self._batch.groups:
            action[g.name] = np.stack([taken[g.name] for taken in self._actions]).astype(
                action_dtype(g)
            )
        length, seed = np.array([self.moment.step], np.int32), self.config.seed + self.episode - 1
        return record(self._batch, seed, self.players, length, action)

    @property
    def text(self) -> str:
        """Four lines: the score, the last action, the keys of the environment and of the game."""
        moment, status = self.moment, "" if self.running else "paused: press any key"
        if self.ended or moment.over[0]:
            status = "ended" if self.ended else "over"
        last = "you play " + (
            self.group if self.players[self.group] == "you" else f"{self.group} {self.agent}"
        )
        if moment.step:
            heads = ", ".join(f"{x:.4g}" for x in moment.action[self.group][0, self.agent].tolist())
            last += f", action {heads}, reward {moment.reward[self.group][0, self.agent]:.4g}"
        first = f"episode {self.episode}, step {moment.step}, {score(moment, 0)}   {status}"
        return (
            f"{first}\n{last}\n{self.player}\nspace pauses, {RESTART} starts a new episode, "
            f"{QUIT} quits"
        )

    def __repr__(self) -> str:
        scores = [f"episode {k + 1}: {score}" for k, score in enumerate(self.scores)]
        return "\n".join([f"<Game {self.spec.name}: {len(scores)} finished episodes>", *scores])
