"""train(): train policies in thousands of parallel environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from cupydrive.errors import ParameterError
from cupydrive.executors.ranks import current_ranks
from cupydrive.experiments.members import check_cuda_graph, train_alone, train_members
from cupydrive.experiments.population import resolve_members
from cupydrive.inputs.arguments import checked_path
from cupydrive.inputs.validation import validated
from cupydrive.protocols import ParamValue
from cupydrive.training.begin import begin, goal_of, refuse_for_run, replaced
from cupydrive.training.config import TrainConfig, check_players, drop_none, resolve
from cupydrive.training.frozen import check_kept
from cupydrive.training.policies import warn_if_never_learning, warn_if_nobody_learns
from cupydrive.training.ranks import require_equal
from cupydrive.training.run import Run
from cupydrive.training.runfolder import check_folder, check_free
from cupydrive.training.suggestions import warn_of_two_meanings

if TYPE_CHECKING:
    from cupydrive.experiments.population import Population
    from cupydrive.protocols import LearnerSettings, PolicySettings
    from cupydrive.spec import EnvSpec


def train(
    env: str | PathLike[str] | EnvSpec | Run,
    algorithm: LearnerSettings | str | None = None,
    *,
    policies: Mapping[str, PolicySettings] | None = None,
    steps: float | None = None,
    num_envs: int | None = None,
    seed: int | None = None,
    seeds: int | Sequence[int] | None = None,
    members: Sequence[Mapping[str, Any]] | None = None,
    device: str = "auto",
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    cuda_graph: bool | None = None,
    callback: Callable[[int, dict[str, float]], Any] | None = None,
    checkpoint_minutes: float = 5.0,
    keep: int = 3,
    backend: str | None = None,
    **params: ParamValue,
) -> Run | Population:
    """Train policies and return the ``Run``, or a ``Population`` of runs.

    An interrupt (Ctrl-C) ends the training after the current iteration and keeps the result.

    On a CPU, the number of torch threads during training depends on the size of the networks.
    Threads change the order of sums in torch's large matrix products, and therefore the last bits
    of a run. The results of kernels do not depend on threads.

    Results do not depend on autocast, inference mode, disabled gradients, or torch's default device
    and dtype. During training, the default dtype is float32 in the whole process. Several threads
    may train concurrently.

    Inside a process group of ``torch.distributed``, all processes call this function with the same
    arguments and train one run together. Each process steps a shard of the environments, and
    gradients are summed over the processes. Only rank 0 writes files, prints and calls the
    callback. Exact kernels give the same weights with any number of processes.

    Args:
        env: Name of an environment, path of its Python file, or ``EnvSpec``. A ``Run`` is continued
            with its own environment, policies and sizes.
        algorithm: Settings such as ``PPO(...)`` or ``A2C(...)``, or the name of an algorithm. Each
            group gets its own policy. Defaults to the suggestion of the environment.
        policies: Settings by group name instead of ``algorithm``, such as ``{"tagger": PPO(),
            "runner": HeuristicPolicy()}``. Groups joined by ``+``, such as ``"tagger+runner"``,
            share one policy. If no policy learns, a warning is issued.
        steps: Total environment steps, rounded up to whole iterations. Defaults to the suggestion
            of the environment for the algorithm. For a ``Run``, the number of additional
            environment steps, which defaults to those missing from its total.
        num_envs: Number of environments. Defaults to the suggestion of the environment for the
            algorithm.
        seed: Random seed. Defaults to 0.
        seeds: Number of runs with the seeds ``seed``, ``seed + 1``, ..., or a list or range of
            seeds, without ``seed``. The result is a ``Population``, and ``num_envs`` and ``steps``
            apply to each run. Runs of equal shapes that learn with kernels share their launches.
        members: List of runs that differ in settings or parameters, as dictionaries of changes,
            such as ``[{"learning_rate": 1e-3}, {"gamma": 0.9}]``. With ``seeds``, each member
            trains with every seed. All members are validated before a folder is created or a run is
            trained.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        out: Folder for configuration, metrics and checkpoints. A population has a subfolder
            ``000``, ``001``, ... for each run. If None, nothing is written.
        resume: Continue the run in ``out`` up to ``steps``, or start a new one if there is none. A
            script with ``resume=True`` can be run repeatedly. A finished run is returned unchanged.
            The arguments must match those of the run.
        overwrite: Replace a run in ``out``. Other files in the folder are kept.
        progress: Show a progress line.
        cuda_graph: Replay iterations as a CUDA graph. Defaults to True on a GPU, unless several
            processes communicate through gloo. False executes the same kernels with the same
            results.
        callback: Function ``callback(step, metrics)``, called after each logged interval. If it
            returns True, training stops early within the next iterations, and the result is kept as
            after Ctrl-C. If it raises, the exception propagates to the caller, and the run is
            written to ``out``. Without ``out``, the run is the exception's attribute ``run``. In a
            population, ``metrics["member"]`` is the index of the run.
        checkpoint_minutes: Minutes between checkpoints, if ``out`` is given. A checkpoint is always
            written at the end.
        keep: Number of checkpoints to keep, at least 1.
        backend: Backend of PPO, A2C and PQN. ``"kernels"`` uses kernels compiled for the network.
            They support described networks with tanh or ReLU, except LSTMs. ``"torch"`` uses torch
            operators and supports every network. ``"auto"``, the default, uses kernels if they
            support the network in the default precision of the device. ``Run.backends`` contains
            the choice for each policy and the reason.
        **params: Parameters of the environment. If a name is also a setting of the algorithm, such
            as ``tau`` of pendulum and DDPG, it is passed to the environment. A warning is issued
            unless ``algorithm`` or ``policies`` are settings objects.

    Returns:
        ``Run``, or a ``Population`` if ``seeds`` or ``members`` is given.

    Raises:
        ParameterError: If settings do not fit each other or the environment, an argument would be
            ignored, or processes that train together received different arguments.
        NotFiniteError: If a loss, reward or observation is not finite. The message names the first
            such number. ``explain()`` of the error's attribute ``run`` returns details, which are
            also written to ``explanation.txt`` in ``out``.
        TrainingError: If a folder cannot be used.
        MemoryLimitError: If the training does not fit into memory.

    Examples:
        >>> import cupydrive as cd
        >>> run = cd.train("cartpole", num_envs=64, steps=50_000, progress=False)
        >>> run.step >= 50_000
        True
    """
    options: dict[str, Any] = {
        "steps": steps, "num_envs": num_envs, "seed": seed, "backend": backend, "resume": resume,
        "overwrite": overwrite,
        "progress": progress, "cuda_graph": cuda_graph, "callback": callback,
        "checkpoint_minutes": checkpoint_minutes,
        "keep": keep, "device": device,
    }  # fmt: skip
    ranks, population = current_ranks(), seeds is not None or members is not None
    options["out"] = out = None if out is None else checked_path("train", "out", out)
    asked: tuple[Any, ...] = (env, algorithm, policies, params)
    if population:
        if isinstance(env, Run) or not ranks.alone:
            raise ParameterError(
                "train: seeds= and members= start several new runs in one process. Pass the name "
                "of the environment, and start one process"
            )
        planned = resolve_members(*asked, seeds=seeds, members=members, **options)
        config = planned[0].config
    elif isinstance(env, Run):
        config = going_on(env, algorithm, policies, options, params)
    else:
        config = resolve(*asked, call=train, **options)
        check_players(config)
    if out is not None:
        check_folder(out, written=not config.resume)
    if not isinstance(env, Run):
        warn_of_two_meanings(env, params, algorithm, policies)
    if population:
        each = [member.config.policies for member in planned]
        for of_one in {str(policies): policies for policies in each}.values():
            warn_if_nobody_learns(config.spec.name, of_one)
        return train_members(planned, out)
    run = env if isinstance(env, Run) else begin(config)
    check_cuda_graph(cuda_graph, ranks.captures(run.device))
    require_equal(run, config)
    if run.step >= config.steps:  # resume=True with a finished run
        return run
    if out is not None:
        check_free(run.folder, out, config.overwrite)
    warn_if_nobody_learns(run.spec.name, run.settings)
    warn_if_never_learning([(run, config.steps)])
    replaces = out is not None and config.overwrite and ranks.rank == 0
    with replaced(run, out) if replaces else nullcontext():  # type: ignore[arg-type]
        train_alone(run, config)
    return run


def going_on(
    run: Run,
    algorithm: LearnerSettings | str | None,
    policies: Mapping[str, PolicySettings] | None,
    options: dict[str, Any],
    params: dict[str, ParamValue],
) -> TrainConfig:
    """Return the configuration with which ``train`` continues a run.

    Raises:
        ParameterError: If an argument is invalid, or the run already defines it.
    """
    own = {name: options[name] for name in ("num_envs", "seed", "backend", "resume")}
    device = options.pop("device")
    refuse_for_run(run, {"algorithm": algorithm, "policies": policies} | own, params, device)
    found: dict[str, Any] = validated("train", TrainConfig, drop_none(options))
    if found["out"] is not None:
        check_kept(run.settings)
    return replace(run.config, **found | {"steps": goal_of(run, found.get("steps"))})
