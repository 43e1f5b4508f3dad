"""Create the run that training starts or continues."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors import checked_device
from cupydrive.inputs.arguments import shown
from cupydrive.inputs.files import file_errors
from cupydrive.playing.torch_settings import memory_errors
from cupydrive.protocols import LearnerSettings
from cupydrive.spec import EnvSpec
from cupydrive.training.config import TrainConfig, check_players, resolve
from cupydrive.training.frozen import check_kept
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints, clear, read_config


def begin(config: TrainConfig, share: int = 1) -> Run:
    """Return a new run, or with ``resume`` the one in ``out``.

    Args:
        config: Configuration of the run.
        share: Number of runs that will share the device.

    Raises:
        MemoryLimitError: If the run does not fit into memory.
    """
    out = config.out
    if out is not None:
        check_kept(config.policies)
    try:
        with memory_errors():
            if out is not None and config.resume and checkpoints(out):
                run = Run.restored(config, out, share)
                run.total = max(config.steps, read_config(out)["total"] or 0)
                return run
            return Run(config, share)
    except ParameterError as error:
        # The error may come from a user's network. The traceback through the trial call does not
        # help its author.
        raise error.with_traceback(None) from error.__cause__


def goal_of(run: Run, steps: int | None = None) -> int:
    """Return the total number of environment steps at which a continued run ends.

    Args:
        run: The ``Run``.
        steps: Additional environment steps. Defaults to those that are missing from the run's
            total.

    Raises:
        ParameterError: If the run has already reached its total.
    """
    goal = run.total if steps is None else run.step + steps
    if goal is None or run.step >= goal:
        raise ParameterError(f"the run has done its {run.step:,} env-steps. Pass steps= for more")
    return goal


@contextmanager
def replaced(run: Run, out: Path) -> Iterator[None]:
    """Hold the lock of ``out`` and remove the run that it contains."""
    with file_errors(TrainingError, f"the run cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with run.lock.hold(out):
        clear(out)
        yield


def make_run(
    env: str | PathLike[str] | EnvSpec, algorithm: LearnerSettings | str | None = None, **given: Any
) -> Run:
    """Return the ``Run`` that ``train`` would train, before its first step.

    The arguments are those of ``train``.
    """
    options = {
        f.name: given.pop(f.name)
        for f in fields(TrainConfig)
        if f.name in given and f.name not in ("spec", "params")
    }
    config = resolve(env, algorithm, options.pop("policies", None), given, **options)
    check_players(config)
    return begin(config)


def refuse_for_run(
    run: Run, refused: dict, params: dict, device: str, where: str = "train"
) -> None:
    """Raise ``ParameterError`` for arguments of ``train(run)`` that the run already defines.

    Args:
        run: The ``Run``.
        refused: Values by name of arguments that must be None or False.
        params: Environment parameters and unknown names. Must be empty.
        device: Must be ``"auto"`` or the device of the run.
        where: Name of the function that received the arguments, for the message.
    """
    for name, value in (*refused.items(), *params.items()):
        if name in params or (value is not None and value is not False):
            raise ParameterError(
                f"{where}(run, {name}={shown(value)}): a run has its environment, policies, "
                f"sizes and seed. Omit {name}, or start a new run from the environment's name"
            )
    if checked_device(device, "train") not in ("auto", run.device):
        raise ParameterError(
            f"train(run, device={shown(device)}): the run is on {run.device}. Save it and load it "
            "on the other device: cupydrive.load(folder, device=...)"
        )
