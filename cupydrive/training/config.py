"""TrainConfig: the complete, validated configuration of a run and its training."""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le
from pydantic import BeforeValidator

from cupydrive import __version__, envs
from cupydrive.errors import CupydriveWarning, ParameterError, TrainingError
from cupydrive.executors import Device, choose, executor
from cupydrive.inputs.arguments import T, checked_callable, checked_path, shown
from cupydrive.inputs.formats import FORMAT
from cupydrive.inputs.validation import Count, validated
from cupydrive.playing.torch_settings import drawing_from
from cupydrive.protocols import EnvParams, LearnerSettings, ParamValue, PolicySettings
from cupydrive.spec import EnvSpec, kept_params
from cupydrive.training.frozen import rebuild, settings_as_json
from cupydrive.training.policies import learning_settings, make_players
from cupydrive.training.runfolder import checkpoints, read_config
from cupydrive.training.suggestions import setting_hints, suggested_algorithm, suggested_sizes


def whole_number(value: T) -> T | int:
    """Convert a float with an integer value to an int, so that environment steps may be given as
    2e6.
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def folder(value: object) -> Path:
    """Validate ``out`` and return it as a path."""
    return checked_path("train", "out", value)


def function(value: object) -> Callable:
    """Validate a callback that takes ``step`` and ``metrics``."""
    return checked_callable("train", "callback", value, takes=("step", "metrics"))


EnvSteps = Annotated[int, BeforeValidator(whole_number), Ge(1), Le(2**53)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]
ALWAYS = ("num_envs", "seed", "backend")  # fields that a continued run keeps
FILLED = ("num_envs", "steps", "seed", "backend")  # fields that ``resolve`` fills in
Callback = Callable[[int, dict[str, float]], object]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Complete, validated configuration of a run and its training, created by ``resolve``.

    Args:
        spec: ``EnvSpec`` of the environment.
        params: Parameters of the environment, as ``spec.make_params`` returns them.
        policies: Settings by policy name.
        num_envs: Number of environments, summed over all processes.
        steps: Total number of environment steps.
        seed: Random seed of the environments, the initial weights and the actions.
        device: ``"cuda"`` or ``"cpu"``.
        backend: Backend of PPO, A2C and PQN.
        out: Folder of the run.
        resume: Continue the run in ``out``.
        overwrite: Replace the run in ``out``.
        progress: Show a progress line.
        cuda_graph: Replay iterations as a CUDA graph. If None, a graph is used wherever possible.
        callback: Called after each logged interval with the environment steps and metrics.
        checkpoint_minutes: Minutes between checkpoints.
        keep: Number of checkpoints to keep.
    """

    spec: EnvSpec
    params: EnvParams
    policies: dict[str, PolicySettings]
    num_envs: Count
    steps: EnvSteps
    seed: Seed = 0
    device: Device = "cpu"
    backend: Literal["auto", "kernels", "torch"] = "auto"
    out: Annotated[Path, BeforeValidator(folder)] | None = None
    resume: bool = False
    overwrite: bool = False
    progress: bool = True
    cuda_graph: bool | None = None
    callback: Annotated[Callback, BeforeValidator(function)] | None = None
    checkpoint_minutes: Annotated[float, Ge(0.0), Le(1e9)] = 5.0
    keep: Count = 3

    def __post_init__(self) -> None:
        if self.out is None and (self.resume or self.overwrite):
            name = "resume" if self.resume else "overwrite"
            raise ParameterError(f"train: {name}=True needs out=, the folder of the run")
        if self.resume and self.overwrite:
            raise ParameterError(
                "train: got resume=True and overwrite=True, expected one of them. resume continues "
                "the run in out, and overwrite replaces it"
            )

    def made_of(self) -> "TrainConfig":
        """Return the configuration without the options of a single call of ``train``."""
        return replace(
            self, out=None, resume=False, overwrite=False, cuda_graph=None, callback=None
        )

    def as_json(self) -> dict:
        """Return the configuration of the run as JSON-compatible values."""
        return {
            "format": FORMAT,
            "cupydrive": __version__,
            "env": self.spec.name,
            **self.spec.about_tables(self.params),
            "params": kept_params(self.params),
            **{name: getattr(self, name) for name in ALWAYS},
            "policies": {
                name: settings_as_json(settings) for name, settings in self.policies.items()
            },
        }


def resolve(
    env: str | PathLike | EnvSpec,
    algorithm: LearnerSettings | str | None = None,
    policies: Mapping[str, PolicySettings] | None = None,
    params: Mapping[str, ParamValue] | None = None,
    *,
    device: str = "auto",
    call: Callable[..., object] | None = None,
    **options: object,
) -> TrainConfig:
    """Return the configuration of a new run, or of the run that ``resume`` continues.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``.
        algorithm: Settings of all groups, the name of an algorithm, or None.
        policies: Settings by policy name, instead of ``algorithm``.
        params: Environment parameters passed by the user.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        call: Public function that the user called, for messages. Defaults to ``train``.
        **options: Other fields of ``TrainConfig``. Number of environments, environment steps, seed
            and backend may be None. They default to the values of the continued run, or to those
            that the environment suggests for the algorithm.

    Raises:
        ParameterError: If an argument is invalid.
        TrainingError: If the run in ``out`` has other settings.
    """
    spec, given = envs.get(env), dict(params or {})
    found: dict[str, Any] = validated(
        call.__name__ if call else "train", TrainConfig, drop_none(options)
    )
    spec.require_known(given, call, setting_hints(env, given, algorithm))
    made = spec.make_params(**given)
    groups = [g.name for g in spec.groups(made)]
    suggested = partial(suggested_algorithm, env, params=given)
    settings = learning_settings(algorithm, policies, groups, suggested)
    chosen = choose(device)[0]
    if found.get("resume") and found.get("out") is not None and checkpoints(found["out"]):
        own = settings if algorithm is not None or policies is not None else None
        named = algorithm if isinstance(algorithm, str) else None
        return continued(found, spec, given, own, chosen, named)
    sizes = suggested_sizes(env, settings, given)
    found = {"num_envs": sizes.num_envs, "steps": sizes.steps} | found
    return TrainConfig(spec=spec, params=made, policies=settings, device=chosen, **found)


def drop_none(given: dict[str, object]) -> dict[str, object]:
    """Drop arguments that are None and default to a value of the run or the environment."""
    return {name: value for name, value in given.items() if value is not None or name not in FILLED}


def check_players(config: TrainConfig) -> None:
    """Raise ``ParameterError`` unless all policies can play and learn together.

    The check allocates no memory on the device.
    """
    with drawing_from(torch.Generator()), warnings.catch_warnings():
        # The run itself repeats the warnings about files.
        warnings.simplefilter("ignore", CupydriveWarning)
        make_players(config, executor(config.device))


# ---- configuration of a run folder ---------------------------------------------------------------


def read_train_config(
    folder: Path,
    spec: EnvSpec,
    device: Device,
    policies: Mapping[str, PolicySettings] | None = None,
) -> TrainConfig:
    """Return the configuration of a run folder.

    Args:
        folder: Run folder.
        spec: Environment of the run.
        device: ``"cuda"`` or ``"cpu"``.
        policies: Settings by policy name that replace those of the folder. Custom modules are not
            saved, so their policies must be passed here.

    Raises:
        TrainingError: If the configuration does not fit the present environment.
    """
    saved = read_config(folder)
    try:
        params = spec.make_params(**saved["params"])
        spec.require_tables("it", params, saved.get("tables"))
        settings = {
            name: rebuild(name, about, policies) for name, about in saved["policies"].items()
        }
    except ParameterError as error:
        raise TrainingError(
            f"{folder / 'config.json'} does not fit the present version of {spec.name!r}: {error}"
        ) from None
    except TrainingError as error:
        raise TrainingError(f"{folder}: {error}") from None
    steps = saved["total"] or suggested_sizes(spec, settings, saved["params"]).steps
    same = {name: saved[name] for name in ("num_envs", "seed", "backend")}
    return TrainConfig(
        spec=spec, params=params, policies=settings, steps=steps, device=device, **same
    )


def continued(
    found: dict,
    spec: EnvSpec,
    params: dict,
    policies: dict | None,
    device: Device,
    named: str | None = None,
) -> TrainConfig:
    """Return the configuration of the run in a folder, which must match the request.

    Args:
        found: Validated fields of ``TrainConfig`` that the user passed, including ``out``.
        spec: Environment that the user passed.
        params: Environment parameters that the user passed.
        policies: Settings by policy name. If None, those of the run are used.
        device: ``"cuda"`` or ``"cpu"``.
        named: Name of the algorithm for which ``policies`` are the suggested settings, or None.

    Raises:
        TrainingError: If the run has other settings, or cannot be read.
    """
    out = found["out"]
    saved = read_config(out)
    require_same(out, {"the environment": spec.name}, {"the environment": saved["env"]})
    if policies is not None and set(policies) == set(saved["policies"]):
        # Learners draw their initial weights in this order.
        policies = {name: policies[name] for name in saved["policies"]}
    envs.compare_origin(str(out), spec, saved.get("origin"))
    given = policies or {}
    theirs = read_train_config(
        out, spec, device, {name: each for name, each in given.items() if name in saved["policies"]}
    )
    params_of_run = saved["params"] | params
    if policies is not None and named is not None:  # suggestions depend on all parameters
        suggested = suggested_algorithm(spec, named, params=params_of_run)
        policies = dict.fromkeys(policies, suggested)
    mine = replace(
        theirs,
        params=spec.make_params(**params_of_run),
        policies=policies or theirs.policies,
        **found,
    )
    known, asked = settings_of(mine.as_json()), {*found, *params}
    if policies is not None:
        asked |= known.keys() - {*ALWAYS, *kept_params(mine.params)}
    require_same(
        out,
        {name: known.get(name) for name in [*known, *params] if name in asked},
        settings_of(saved),
    )
    return mine


def settings_of(config: dict) -> dict[str, object]:
    """Return the values that two runs must share, by the name that messages use.

    Args:
        config: Result of ``TrainConfig.as_json``.
    """
    policies = config["policies"].items()
    found = {name: config[name] for name in ALWAYS} | config["params"]
    found["the policies' groups"] = ", ".join(config["policies"])
    found |= {
        f"{key} of policy {name!r}": value for name, each in policies for key, value in each.items()
    }
    return json.loads(json.dumps(found))


def require_same(out: Path, mine: dict[str, object], theirs: dict[str, object]) -> None:
    """Raise ``TrainingError`` if the run in ``out`` differs from the requested one."""
    differ = [
        f"{name}: found {shown(theirs.get(name))}, expected {shown(mine[name])}"
        for name in mine
        if mine[name] != theirs.get(name)
    ]
    if differ:
        raise TrainingError(
            f"out = {str(out)!r} holds a run with other settings: {', '.join(differ)}. Leave "
            "these arguments out to continue the run, or pass overwrite=True (--overwrite) or "
            "another folder"
        )
