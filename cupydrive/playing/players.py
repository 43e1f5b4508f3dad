"""Players that do not learn: a random policy, the environment's heuristic, or a trained policy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch

from cupydrive.errors import ParameterError
from cupydrive.executors.interop import zeros
from cupydrive.inputs.names import NotCopied
from cupydrive.playing.inference import HeuristicModule, Moments, evaluating
from cupydrive.playing.policy import Distribution, Sampler, make_distribution, with_state
from cupydrive.playing.rollout import Rollout
from cupydrive.protocols import Learner, Player
from cupydrive.simulation.observations import network_input, raw_obs
from cupydrive.spec import EnvSpec, Group


@dataclass(frozen=True)
class RandomPolicy:
    """Uniformly random actions.

    Examples:
        >>> import cupydrive as cd
        >>> policies = {"tagger": cd.HeuristicPolicy(), "runner": cd.RandomPolicy()}
        >>> result = cd.evaluate("tag_grid", policies, episodes=10, device="cpu")
    """

    def player(self, spec: EnvSpec, group: Group) -> Player:
        """Create the player of one group.

        Args:
            spec: ``EnvSpec`` of the environment.
            group: ``Group`` of the environment.
        """
        return RandomPlayer()

    def __str__(self) -> str:
        return "random"


@dataclass(frozen=True)
class HeuristicPolicy:
    """The environment's own heuristic.

    Examples:
        >>> import cupydrive as cd
        >>> policies = {"tagger": cd.PPO(), "runner": cd.HeuristicPolicy()}
        >>> run = cd.train("tag_grid", policies=policies, num_envs=64, steps=10_000, progress=False)
    """

    def player(self, spec: EnvSpec, group: Group) -> Player:
        """Create the player of one group.

        Args:
            spec: ``EnvSpec`` of the environment.
            group: ``Group`` of the environment.

        Raises:
            ParameterError: If the environment has no heuristic.
        """
        heuristic = spec.heuristic
        if heuristic is None:
            fix = f"Play {group.name!r} at random (cd.RandomPolicy()) or by a trained policy"
            raise ParameterError(f"{spec.name} has no heuristic. {fix}")
        return ModulePlayer(
            lambda rollout, g, _: HeuristicModule(heuristic, rollout.batch.params, g)
        )

    def __str__(self) -> str:
        return "heuristic"


@dataclass(frozen=True)
class Trained(NotCopied):
    """Policy in memory that does not learn, as returned by ``Run.frozen``.

    Args:
        learner: Learner that has the policy.
        greedy: Whether it takes the most likely action.
        words: Description of the player.
        brief: Description in one word.
    """

    learner: Learner
    greedy: bool = True
    words: str = "trained"
    brief: str = "trained"

    instead = (
        "it plays with a run's policy in memory. Keep the run with run.save(folder) and "
        "cupydrive.load(folder)"
    )

    def player(self, spec: EnvSpec, group: Group) -> Player:
        """Create the player of one group."""
        return self.learner.acting(self.greedy)

    def __str__(self) -> str:
        return self.words


class RandomPlayer:
    """Plays uniformly random actions.

    Choices have equal logits, subject to the mask. Values of a Box are uniform within its bounds.
    """

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``."""
        self.group, device = group, rollout.device
        rows = rollout.batch.num_envs * group.count
        self.distribution = make_distribution(group)
        self.raw: torch.Tensor | None = None
        if group.continuous:
            self.low = torch.as_tensor(group.box.low, device=device)
            self.span = torch.as_tensor(group.box.high, device=device) - self.low
            self.raw = torch.empty_like(rollout.action[group.name][0])
        self.parameters = zeros(device, rows, self.distribution.size)
        self.sampler = Sampler(self.distribution, rollout.batch, group)

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t."""
        action, mask = rollout.action[self.group.name][t], rollout.mask(self.group, t)
        self.sampler(self.parameters, action, raw=self.raw, mask=mask)
        # apply the normal distribution's cumulative function, which makes the values uniform
        if self.raw is not None:
            numbers = (..., slice(len(self.group.sizes), None))
            action[numbers] = self.low + self.span * torch.special.ndtr(self.raw[numbers])

    def module(self, rollout: Rollout, group: Group) -> NoReturn:
        """Raise ``ParameterError``, since random actions have no module."""
        raise ParameterError(
            f"group {group.name!r} plays at random in this run. Leave it out, or sample its "
            f"action space"
        )


class ModulePlayer:
    """Plays with a module for each group: a heuristic, or a deterministic policy.

    Args:
        make: Function of a ``Rollout``, a ``Group`` and the ``RunningMeanStd`` of observations to
            apply, or None. Returns a module from observations (..., D) to actions.
        obs_rms: ``RunningMeanStd`` of observations, or None.
    """

    def __init__(
        self, make: Callable[..., torch.nn.Module], obs_rms: Moments | None = None
    ) -> None:
        self.make, self.obs_rms = make, obs_rms
        self.modules: dict[str, torch.nn.Module] = {}
        self.groups: dict[str, Group] = {}

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``."""
        self.modules[group.name] = self.make(rollout, group, None)
        self.groups[group.name] = group

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t."""
        for name, module in self.modules.items():
            obs, action = raw_obs(self.groups[name], rollout.obs[name][t]), rollout.action[name][t]
            with evaluating(module):
                found = module(obs if self.obs_rms is None else self.obs_rms.normalized(obs))
            action.copy_(found.view_as(action))

    def module(self, rollout: Rollout, group: Group) -> torch.nn.Module:
        """Return the module of ``group``, from raw observations to actions."""
        return self.make(rollout, group, self.obs_rms)


class PolicyPlayer:
    """Plays with a torch policy that does not learn.

    Args:
        policy: Module, (B, D) -> (parameters, value).
        distribution: Distribution of its actions.
        greedy: Whether it takes the most likely action.
        obs_rms: ``RunningMeanStd`` of observations, or None.

    Attributes:
        memories: (N * C, M) by group, hidden states after the latest step. ``act`` resets those of
            episodes that ended in it.
    """

    def __init__(
        self,
        policy: torch.nn.Module,
        distribution: Distribution,
        greedy: bool = True,
        obs_rms: Moments | None = None,
    ) -> None:
        self.policy, self.distribution = policy, distribution
        self.greedy, self.obs_rms = greedy, obs_rms
        self.ask = with_state(policy)
        self.groups: list[Group] = []
        self.samplers: dict[str, Sampler] = {}
        self.raws: dict[str, torch.Tensor] = {}
        self.memories: dict[str, torch.Tensor] = {}

    def begin(self, rollout: Rollout, group: Group) -> None:
        """Prepare to play ``group``."""
        self.groups.append(group)
        self.samplers[group.name] = Sampler(self.distribution, rollout.batch, group)
        if self.distribution.raw_size:
            self.raws[group.name] = torch.empty_like(rollout.action[group.name][0])
        if self.ask.state_size:
            agents = rollout.batch.num_envs * group.count
            self.memories[group.name] = zeros(rollout.device, agents, self.ask.state_size)

    def act(self, rollout: Rollout, t: int) -> None:
        """Write the actions of row t."""
        for g in self.groups:
            memory = self.memories.get(g.name)
            start = None if memory is None else rollout.agent_starts(g, t)
            with evaluating(self.policy):
                obs = rollout.obs_rows(g, t)
                obs = obs if self.obs_rms is None else self.obs_rms.normalized(obs)
                parameters, _, left = self.ask(network_input(g, obs), memory, start)
            if memory is not None:
                memory.copy_(left)
            how = {"raw": self.raws.get(g.name), "mask": rollout.mask(g, t), "greedy": self.greedy}
            self.samplers[g.name](parameters.float(), rollout.action[g.name][t], **how)

    def module(self, rollout: Rollout, group: Group) -> torch.nn.Module:
        """Return the policy as a module from raw observations to actions."""
        return self.distribution.module(self.policy, group, self.obs_rms)
