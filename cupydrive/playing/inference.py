"""Trained policies outside training: from raw observations to actions, without kernels.

Torch can therefore export them. ``Run.act``, ``Run.policy`` and ``Run.export`` use this module.
Letters: D observation entries, H action entries of one agent, K choices of all its heads together,
M entries of a hidden state. "..." stands for any leading dimensions, such as (N,) or (N, C).
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import nn

from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors.interop import heuristic_heads
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_choice,
    checked_instance,
    checked_mapping,
    checked_path,
    kind_of,
    require_folder,
)
from cupydrive.inputs.files import write_atomically

if TYPE_CHECKING:
    from cupydrive.protocols import EnvParams
    from cupydrive.spec import Group

Rows: TypeAlias = torch.Tensor | np.ndarray  # (..., D), (..., K) or (..., M)
RowsByGroup: TypeAlias = Rows | dict[str, Rows]  # a single group has no dictionary
Acted: TypeAlias = (
    torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]
)  # actions, and a hidden state if there is one
Module: TypeAlias = "PolicyModule | HeuristicModule"
M = TypeVar("M", bound=nn.Module)

# The kernel compares exp(logit - largest logit) in float32, which is exactly 1 for smaller
# differences. Such choices are equally likely, and the first of them is taken.
AS_LIKELY = 2.0**-25

Generator: TypeAlias = torch.Generator | None  # draws actions. None selects torch's global one


class Moments(Protocol):
    """Mean and standard deviation of observations. ``RunningMeanStd`` implements it."""

    mean: torch.Tensor

    def scale(self) -> torch.Tensor:
        """Return the reciprocal of the standard deviation, float32."""

    def normalized(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows with mean 0 and standard deviation 1."""


def without(logits: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Return logits with minus infinity for forbidden choices.

    Rows without an allowed choice are unchanged.
    """
    return logits.masked_fill(~(allowed | ~allowed.any(-1, keepdim=True)), -torch.inf)


def first_largest(logits: torch.Tensor) -> torch.Tensor:
    """Return the most likely choice of each row. The first of equally likely choices is taken."""
    return ((logits.amax(1, keepdim=True) - logits) <= AS_LIKELY).to(torch.int32).argmax(1)


class PolicyModule(nn.Module):
    """Module from raw observations (..., D) to actions of one group, as ``env.step`` takes them.

    A call returns greedy actions.

    Args:
        network: Module, (B, D) -> (parameters, value), or with hidden state as in
            ``cupydrive.playing.policy.with_state``.
        group: The ``Group``.
        obs_rms: ``RunningMeanStd`` of observations, or None.
    """

    def __init__(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> None:
        super().__init__()
        self.network = network
        self.obs_shape = group.obs_shape
        self.choices = group.choices  # K
        self.masked, self.normalizes = group.mask, obs_rms is not None
        self.group, self.state_size = group.name, getattr(network, "state_size", 0)
        self.agents = getattr(network, "agents_per_row", 0)
        if group.obs_dtype == "uint8":
            high = torch.as_tensor(group.obs_high, dtype=torch.float32, device=self.device)
            high = high if high.dim() == 0 else high.view(self.obs_shape)
            self.register_buffer("obs_high", high)
        if obs_rms is not None:
            self.register_buffer("mean", obs_rms.mean.float())
            self.register_buffer("scale", obs_rms.scale())

    def lead(self, obs: torch.Tensor) -> torch.Size:
        """Return the leading dimensions of observations (..., *obs_shape)."""
        return obs.shape[: -len(self.obs_shape)]

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def check_shapes(self, lead: torch.Size, **given: torch.Tensor | None) -> None:
        """Raise ``ParameterError`` if ``obs``, ``state`` or ``start`` has another shape."""
        inner = {"obs": self.obs_shape, "state": (self.state_size,), "start": ()}
        for name, rows in given.items():
            expected = (*lead, *inner[name])
            if rows is not None and rows.shape != expected:
                raise ParameterError(
                    f"the policy of {self.group!r}: got {name} of shape {tuple(rows.shape)}, "
                    f"expected {expected}"
                )

    def parameters_of(
        self,
        obs: torch.Tensor,
        state: torch.Tensor | None,
        mask: torch.Tensor | None = None,
        start: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the network's first output, (B, size), and the next hidden state.

        Autocast is disabled. Observations are (..., *obs_shape).
        """
        if mask is not None and mask.shape[-1:] != (self.choices,):
            raise ParameterError(
                f"the policy of {self.group!r}: got mask of shape {tuple(mask.shape)}, expected "
                f"{f'(..., {self.choices})' if self.choices else 'None'}. If this argument is a "
                f"hidden state, pass it as state=..."
            )
        lead = self.lead(obs)
        if not torch.jit.is_tracing():  # which has tensors in place of shapes
            self.check_shapes(lead, obs=obs, state=state, start=start)
        if torch.is_autocast_enabled(obs.device.type):
            with torch.autocast(obs.device.type, enabled=False, cache_enabled=False):
                return self.parameters_of(obs, state, start=start)
        rows = obs.reshape(-1, *self.obs_shape).float()
        if self.normalizes:
            flat = (rows.flatten(1) - self.mean) * self.scale
            rows = flat.clamp(-10.0, 10.0).view_as(rows)
        if hasattr(self, "obs_high"):
            rows = rows / self.obs_high
        inside = (self.agents,) if self.agents else ()
        if self.agents and lead[-1:] != inside:
            raise ParameterError(
                f"the policy of {self.group!r} takes whole environments: got obs of shape "
                f"{tuple(obs.shape)}, expected {self.agents} agents along axis "
                f"{-len(self.obs_shape) - 1}"
            )
        rows = rows.reshape(-1, *inside, *self.obs_shape)
        if not self.state_size:
            return self.network(rows)[0].flatten(0, -2).float(), None
        shape = (*lead, self.state_size)
        state = rows.new_zeros(shape) if state is None else state.to(rows.dtype)
        if start is not None:
            state = state.masked_fill(start[..., None], 0.0)
        state = state.reshape(-1, *inside, self.state_size)
        parameters, _, state = self.network(rows, state, None)
        return parameters.flatten(0, -2).float(), state.reshape(shape)

    def forward(
        self,
        obs: torch.Tensor,
        mask: torch.Tensor | None = None,
        state: torch.Tensor | None = None,
        start: torch.Tensor | None = None,
    ) -> Acted:
        """Return the most likely actions. A network with hidden state adds the next state.

        Args:
            obs: (..., *obs_shape) floats, as ``env.step`` returns them.
            mask: (..., K), true or 1 for allowed choices. None for groups without masks.
            state: (..., M) hidden state. Defaults to zeros.
            start: (...,) bool, true at the beginning of an episode, which resets the state to 0.
                By default no state is reset.
        """
        parameters, state = self.parameters_of(obs, state, mask, start)
        action = self.likeliest(parameters, obs, mask)
        return (action, state) if self.state_size else action

    def sample(
        self,
        obs: torch.Tensor,
        mask: torch.Tensor | None,
        generator: Generator,
        state: torch.Tensor | None = None,
    ) -> Acted:
        """Return random actions. Arguments and results are those of ``forward``."""
        parameters, state = self.parameters_of(obs, state, mask)
        action = self.drawn(parameters, obs, mask, generator)
        return (action, state) if self.state_size else action


class DiscretePolicy(PolicyModule):
    """Actions of discrete heads, int32: (...,) for one head, (..., H) for several."""

    def __init__(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> None:
        super().__init__(network, group, obs_rms)
        self.sizes = group.sizes

    def logits(self, parameters: torch.Tensor, mask: torch.Tensor | None) -> Sequence[torch.Tensor]:
        """Return the logits of each head, (B, choices), minus infinity for forbidden choices."""
        if mask is None:
            if self.masked:
                raise ParameterError(
                    f"the policy of {self.group!r} got no action mask, expected one, since choices "
                    "can be forbidden in this group. Pass mask=info['action_mask'], or ones to "
                    "allow everything"
                )
            return parameters.split(self.sizes, dim=1)
        masks = mask.reshape(-1, self.choices).bool().split(self.sizes, 1)
        return [without(*both) for both in zip(parameters.split(self.sizes, 1), masks, strict=True)]

    def shaped(self, heads: Sequence[torch.Tensor], obs: torch.Tensor) -> torch.Tensor:
        """Combine the choices of all heads, (B,) each, in one int32 tensor."""
        one = heads[0] if len(heads) == 1 else torch.stack(heads, dim=-1)
        lead = self.lead(obs) if len(heads) == 1 else (*self.lead(obs), len(heads))
        return one.to(torch.int32).reshape(lead)

    def likeliest(
        self, parameters: torch.Tensor, obs: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the most likely choices."""
        return self.shaped([first_largest(x) for x in self.logits(parameters, mask)], obs)

    def chances(
        self, parameters: torch.Tensor, mask: torch.Tensor | None
    ) -> Sequence[torch.Tensor]:
        """Return the probabilities of each head's choices, (B, choices)."""
        return [torch.softmax(x, dim=1) for x in self.logits(parameters, mask)]

    def drawn(
        self,
        parameters: torch.Tensor,
        obs: torch.Tensor,
        mask: torch.Tensor | None,
        generator: Generator,
    ) -> torch.Tensor:
        """Return random choices."""
        chances = self.chances(parameters, mask)
        heads = [torch.multinomial(p, 1, generator=generator)[:, 0] for p in chances]
        return self.shaped(heads, obs)


class EpsilonGreedyPolicy(DiscretePolicy):
    """Actions of one discrete head, whose parameters are action values.

    Args:
        network: Network of a ``PolicyModule``.
        group: The ``Group``.
        obs_rms: ``RunningMeanStd`` of observations, or None.
        epsilon: () float32, probability of a random allowed action.
    """

    epsilon: torch.Tensor

    def __init__(
        self, network: nn.Module, group: Group, obs_rms: Moments | None, epsilon: torch.Tensor
    ) -> None:
        super().__init__(network, group, obs_rms)
        self.register_buffer("epsilon", epsilon, persistent=False)

    def chances(
        self, parameters: torch.Tensor, mask: torch.Tensor | None
    ) -> Sequence[torch.Tensor]:
        """Return the probabilities of the choices, (B, choices)."""
        (values,) = self.logits(parameters, mask)
        allowed = (values > -torch.inf).to(values.dtype)
        largest = nn.functional.one_hot(first_largest(values), values.shape[1])
        return [torch.lerp(largest.to(values.dtype), allowed / allowed.sum(1, True), self.epsilon)]


class BoxPolicy(PolicyModule):
    """Actions of a Box, (..., H) float32 within its bounds. They have no masks.

    Args:
        network: Network of a ``PolicyModule``.
        group: The ``Group``.
        obs_rms: ``RunningMeanStd`` of observations, or None.
        squashed: Map tanh of the network's outputs to the bounds. Otherwise outputs are clipped.
    """

    def __init__(
        self, network: nn.Module, group: Group, obs_rms: Moments | None, squashed: bool
    ) -> None:
        super().__init__(network, group, obs_rms)
        self.squashed = squashed
        for name in ("low", "high"):
            self.register_buffer(
                name, torch.as_tensor(getattr(group.box, name), device=self.device)
            )

    def bounded(self, raw: torch.Tensor, obs: torch.Tensor) -> torch.Tensor:
        """Map (B, H) values to actions within the bounds."""
        if self.squashed:
            raw = self.low + 0.5 * (self.high - self.low) * (torch.tanh(raw) + 1.0)
        return torch.clamp(raw, self.low, self.high).reshape(*self.lead(obs), raw.shape[-1])

    def likeliest(
        self, parameters: torch.Tensor, obs: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the means."""
        return self.bounded(parameters.chunk(2, dim=1)[0], obs)

    def drawn(
        self,
        parameters: torch.Tensor,
        obs: torch.Tensor,
        mask: torch.Tensor | None,
        generator: Generator,
    ) -> torch.Tensor:
        """Return random actions."""
        mean, log_deviation = parameters.chunk(2, dim=1)
        normal = torch.randn(
            mean.shape, generator=generator, dtype=torch.float32, device=mean.device
        )
        return self.bounded(mean + log_deviation.exp() * normal, obs)


class MixedPolicy(DiscretePolicy, BoxPolicy):
    """Actions of discrete heads and a Box, (..., H) float32: all choices, then all Box values.

    Args:
        network: Network of a ``PolicyModule``.
        group: The ``Group``.
        obs_rms: ``RunningMeanStd`` of observations, or None.
        squashed: Map tanh of the Box's outputs to the bounds. Otherwise they are clipped.
    """

    def __init__(
        self, network: nn.Module, group: Group, obs_rms: Moments | None, squashed: bool
    ) -> None:
        BoxPolicy.__init__(self, network, group, obs_rms, squashed)
        self.sizes = group.sizes

    def joined(self, choices: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Concatenate choices and Box values."""
        choices = choices.reshape(*numbers.shape[:-1], len(self.sizes))
        return torch.cat((choices.to(numbers.dtype), numbers), dim=-1)

    def likeliest(
        self, parameters: torch.Tensor, obs: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the most likely choices and the means."""
        logits, others = parameters.tensor_split([self.choices], dim=1)
        numbers = BoxPolicy.likeliest(self, others, obs, None)
        return self.joined(super().likeliest(logits, obs, mask), numbers)

    def drawn(
        self,
        parameters: torch.Tensor,
        obs: torch.Tensor,
        mask: torch.Tensor | None,
        generator: Generator,
    ) -> torch.Tensor:
        """Return random actions."""
        logits, others = parameters.tensor_split([self.choices], dim=1)
        choices = super().drawn(logits, obs, mask, generator)
        return self.joined(choices, BoxPolicy.drawn(self, others, obs, None, generator))


class DeterministicPolicy(BoxPolicy):
    """Actions of a deterministic policy, whose network returns values in [-1, 1]."""

    def __init__(self, network: nn.Module, group: Group, obs_rms: Moments | None) -> None:
        super().__init__(network, group, obs_rms, squashed=False)

    def likeliest(
        self, parameters: torch.Tensor, obs: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the actions."""
        return self.bounded(self.low + 0.5 * (self.high - self.low) * (parameters + 1.0), obs)

    def drawn(
        self,
        parameters: torch.Tensor,
        obs: torch.Tensor,
        mask: torch.Tensor | None,
        generator: Generator,
    ) -> torch.Tensor:
        """Return the same actions, since exploration noise is part of training."""
        return self.likeliest(parameters, obs, mask)


class HeuristicModule(nn.Module):
    """Heuristic of an environment as a module from observations (..., D) to actions.

    Args:
        heuristic: ``EnvSpec.heuristic``.
        params: Parameters of the environment.
        group: The ``Group``.
    """

    device = masked = None  # the heuristic has no tensors and ignores masks
    state_size = 0

    def __init__(self, heuristic: Callable, params: EnvParams, group: Group) -> None:
        super().__init__()
        self.heuristic, self.params = heuristic, params
        self.group, self.obs_shape = group, group.obs_shape
        self.lone = not group.continuous and group.heads == 1
        self.eval()

    def forward(
        self, obs: torch.Tensor, mask: torch.Tensor | None = None, state: torch.Tensor | None = None
    ) -> Acted:
        """Return the actions."""
        heads = heuristic_heads(self.heuristic, self.params, obs, self.group)
        return heads[0] if self.lone else torch.stack(heads, dim=-1)

    def sample(
        self,
        obs: torch.Tensor,
        mask: torch.Tensor | None,
        generator: Generator,
        state: torch.Tensor | None = None,
    ) -> Acted:
        """Return the same actions."""
        return self(obs)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without dropout or updates of batch statistics."""
    training, frozen = module.training, [part for part in module.modules() if not part.training]
    if training:
        module.eval()
    try:
        yield
    finally:
        if training:
            module.train()
            for part in frozen:
                part.training = False


# ---- Run.act, Run.policy, Run.export -------------------------------------------------------------


def act(
    modules: Mapping[str, Module],
    obs: RowsByGroup,
    greedy: bool,
    mask: RowsByGroup | None,
    generator: Generator,
    state: RowsByGroup | None,
) -> RowsByGroup | tuple[RowsByGroup, RowsByGroup]:
    """Return actions by group, or one tensor or array if ``obs`` is one. See ``Run.act``.

    Args:
        modules: ``PolicyModule`` or ``HeuristicModule`` by group name.
        obs: Observations, by group if there are several.
        greedy: Return the most likely actions instead of random ones.
        mask: Allowed choices in the form of ``obs``, or None.
        generator: ``torch.Generator`` of random actions, or None.
        state: Hidden states in the form of ``obs``, or None.
    """
    greedy = checked_bool("act", "greedy", greedy)
    words = "a torch.Generator or None"
    checked_instance("act", "generator", generator, (torch.Generator, type(None)), words)
    if not isinstance(obs, dict) and len(modules) > 1:
        raise ParameterError(
            f"act: obs is {kind_of(obs)}, expected a dict for several groups, with "
            f"{', '.join(modules)}"
        )
    given: dict[str, dict[str, Rows]] = {}
    for argument, value in (("obs", obs), ("mask", mask), ("state", state)):
        if not isinstance(value, dict) and not isinstance(obs, dict):
            value = dict.fromkeys(modules, value)
        given[argument] = checked_mapping("act", argument, {} if value is None else value)
        for name in given[argument]:
            checked_choice("act", f"a group in {argument}", name, modules)
    actions: dict[str, Rows] = {}
    states: dict[str, Rows] = {}
    for name, rows in given["obs"].items():
        about = greedy, given["mask"].get(name), generator, given["state"].get(name)
        actions[name], left = act_of(name, modules[name], rows, *about)
        states |= {} if left is None else {name: left}
    if not isinstance(obs, dict):
        (name,) = actions
        return (actions[name], states[name]) if states else actions[name]
    return (actions, states) if states else actions


def act_of(
    name: str,
    module: Module,
    obs: Rows,
    greedy: bool,
    mask: Rows | tuple[np.ndarray, ...] | None,
    generator: Generator,
    state: Rows | None,
) -> tuple[Rows, Rows | None]:
    """Return the actions of one group and its next hidden state, or None.

    The results are tensors or arrays like ``obs``, on its device.
    """
    shape = module.obs_shape
    rows = checked_rows(f"act: the observation of {name!r}", obs, shape, any_number=True)
    lead = rows.shape[: -len(shape)]
    device = module.device or rows.device
    rows = rows.to(device, torch.float32)
    given: dict[str, torch.Tensor | None] = {"mask": None, "state": None}
    if mask is not None and isinstance(module, PolicyModule):
        if not module.choices:
            raise ParameterError(
                f"act: mask of {name!r}: a Box has no choices to mask. Leave it out"
            )
        # concatenate masks by head
        if isinstance(mask, tuple) and mask and all(isinstance(head, np.ndarray) for head in mask):
            mask = np.concatenate(mask, axis=-1)
        about = f"act: mask of {name!r}", mask, (module.choices,)
        allowed = checked_rows(*about, bools=True).to(device)
        # A mask may have an agent axis of 1 that observations of a single agent lack.
        given["mask"] = allowed.squeeze(-2) if allowed.shape[:-1] == (*lead, 1) else allowed
    if state is not None:
        if not module.state_size:
            raise ParameterError(
                f"act: got a state of {name!r}, whose policy has no hidden state. Leave it out"
            )
        about = f"act: state of {name!r}", state, (module.state_size,)
        given["state"] = checked_rows(*about).to(device, torch.float32)
    for argument, value in given.items():
        if value is not None and value.shape[:-1] != lead:
            raise ParameterError(
                f"act: {argument} of {name!r} has shape {tuple(value.shape)}, expected "
                f"{(*lead, value.shape[-1])} for these observations"
            )
    if generator is not None and generator.device.type != device.type:
        raise ParameterError(
            f"act: generator is on {generator.device}, but the run's policies are on {device}"
        )
    with torch.no_grad(), evaluating(module):
        found = (
            module(rows, **given) if greedy else module.sample(rows, generator=generator, **given)
        )
    action, left = found if isinstance(found, tuple) else (found, None)
    if isinstance(obs, np.ndarray):
        return action.cpu().numpy(), None if left is None else left.cpu().numpy()
    return action.to(obs.device), None if left is None else left.to(obs.device)


def checked_rows(
    where: str,
    values: object,
    shape: tuple[int, ...],
    bools: bool = False,
    any_number: bool = False,
) -> torch.Tensor:
    """Convert a torch tensor or NumPy array to a tensor (..., *shape).

    Args:
        where: Description of the values for messages.
        values: The tensor or array.
        shape: Its last dimensions.
        bools: Expect bools or integers instead of floats.
        any_number: Convert bools to floats.

    Raises:
        ParameterError: If it is neither a tensor nor an array, or its shape or type is wrong.
    """
    kinds, words = ("biu", "bool or int8") if bools else ("fiub", "float32")
    if isinstance(values, np.ndarray) and values.dtype.kind in kinds:
        values = torch.from_numpy(np.array(values, bool if bools else np.float32))
    if (
        not isinstance(values, torch.Tensor)
        or values.layout != torch.strided
        or values.is_quantized
        or values.device.type == "meta"
        or values.is_complex()
        or (values.is_floating_point() if bools else values.dtype == torch.bool and not any_number)
    ):
        raise ParameterError(
            f"{where} is {kind_of(values)}, expected a torch tensor or NumPy array of {words}"
        )
    if values.shape[-len(shape) :] != shape:
        axes = f"axis must be {shape[0]}" if len(shape) == 1 else f"axes must be {shape}"
        raise ParameterError(
            f"{where} has shape {tuple(values.shape)}, but its last {axes}: (..., "
            f"{', '.join(map(str, shape))})"
        )
    return values


def standalone(module: M) -> M:
    """Return a copy of a module in evaluation mode without gradients.

    Further training does not change it.
    """
    return copy.deepcopy(module).eval().requires_grad_(False)


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Hide the exporter's warnings about optional packages and its own deprecated calls."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)


def export_onnx(module: Module, path: str | PathLike[str]) -> Path:
    """Write a ``PolicyModule`` as an ONNX file and return its path.

    Its input is ``obs``, (batch, *obs_shape) float32. If choices of the group can be forbidden, it
    also has the input ``mask``, (batch, K) bool. Its output is ``action``, as the module returns
    it. A policy with hidden state also has the inputs ``state``, (batch, M) float32, and ``start``,
    (batch,) bool, and the output ``next_state``.

    Raises:
        ParameterError: If the path does not end in .onnx.
        TrainingError: If a package is missing, or the file cannot be written.
    """
    target: Path = checked_path("export", "path", path)
    if target.suffix != ".onnx":
        raise ParameterError(f"export: path = {str(target)!r}, but it must end in .onnx")
    require_folder("path", target)
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise TrainingError(f"export needs {' and '.join(missing)}: pip install onnx onnxscript")
    module = module.cpu()
    inputs = {"obs": torch.zeros(2, *module.obs_shape, dtype=torch.float32, device="cpu")}
    if module.masked:
        inputs["mask"] = torch.ones(2, sum(module.sizes), dtype=torch.bool, device="cpu")
    if module.state_size:
        inputs["state"] = torch.zeros(2, module.state_size, dtype=torch.float32, device="cpu")
        inputs["start"] = torch.zeros(2, dtype=torch.bool, device="cpu")
    batch = torch.export.Dim("batch")
    with quiet_exporter():
        try:
            program = torch.onnx.export(
                module,
                kwargs=inputs,
                dynamo=True,
                input_names=list(inputs),
                output_names=["action", "next_state"][: 1 + bool(module.state_size)],
                dynamic_shapes={name: {0: batch} for name in inputs},
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise TrainingError(
                "torch cannot export this policy's network to ONNX. "
                f"torch.export.export(run.policy(...), ...) shows why: "
                f"{str(error).partition(chr(10))[0]}"
            ) from error
    if not all(
        given.type.tensor_type.shape.dim[0].dim_param for given in program.model_proto.graph.input
    ):
        raise TrainingError(
            "export: this policy's network fixes the batch: got 2 rows, expected any number. "
            "Write obs.shape[0] in its forward in place of len(obs), and no other Python number "
            "that depends on the batch"
        )
    try:
        write_atomically(target, program.model_proto.SerializeToString())
    except OSError as error:
        raise TrainingError(f"{target} cannot be written: {error.strerror}") from None
    return target
