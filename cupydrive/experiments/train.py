"""train(): policies learn in thousands of environments; on a GPU whole iterations replay as one
CUDA graph.
"""

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
    """Train policies and return the ``Run``, or a ``Population`` of runs; an interrupt (Ctrl-C)
    keeps the result so far.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``; or a ``Run`` that is to
            go on, which brings all that it was made of.
        algorithm: ``PPO(...)``, ``A2C(...)``, their names, or None: what the environment suggests.
            Each group gets a policy of its own.
        policies: Settings by group name instead, such as ``{"tagger": PPO(), "runner":
            HeuristicPolicy()}``; groups joined by ``+``, such as ``"tagger+runner"``, share one
            policy. Where nobody learns a warning says so.
        steps: Env-steps in all, rounded up to whole iterations; None: as many as the environment
            suggests for the algorithm. For a ``Run``: more of them, default up to its total.
        num_envs: N; None: as many as the environment suggests for the algorithm.
        seed: Of everything random; None: 0.
        seeds: A number of runs that differ in their seeds, ``seed``, ``seed + 1``, ...; or a list
            or range of seeds, without ``seed``. The result is a ``Population``, and ``num_envs``
            and ``steps`` are of each run. Runs of equal shapes that learn by kernels share their
            launches.
        members: A list of runs that differ in settings or parameters, as dictionaries of what each
            changes, such as ``[{"learning_rate": 1e-3}, {"gamma": 0.9}]``; with ``seeds``, each
            with all of them. What does not fit one of them is an error that names it, before any is
            trained or a folder is made.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        out: Folder for configuration, metrics and checkpoints; of a population, for a folder
            ``000``, ``001``, ... of each run. None: nothing is written.
        resume: Go on with the run in ``out`` up to ``steps`` in all, or begin it where there is
            none: a script may run again and again. A run that is done is returned as it is. What is
            given here must be what that run was made of.
        overwrite: Replace a run in ``out``; other files there stay.
        progress: Show one progress line.
        cuda_graph: Replay iterations as a CUDA graph. None: on a GPU, unless several processes
            exchange through gloo. False runs the same code with the same numbers.
        callback: ``callback(step, metrics)`` after each logged interval. If it returns True,
            training ends within the next iterations, and the result is kept as after Ctrl-C: early
            stopping. If it raises, the exception goes on to the caller, and the run up to then is
            written to ``out``; without ``out`` the exception's attribute ``run`` is the ``Run``. In
            a population ``metrics`` also has the number of the run, ``"member"``.
        checkpoint_minutes: Time between checkpoints, if ``out`` is given; one is always written at
            the end.
        keep: Checkpoints to keep, at least 1.
        backend: What PPO and A2C compute with. ``"kernels"``: compiled for the network, for the
            default one with tanh or ReLU. ``"torch"``: torch's operations, for every network.
            ``"auto"``, which is meant by None: kernels where they apply. ``Run.backends`` says what
            each policy got, and why.
        **params: Parameters of the environment. One whose name is a setting of the algorithm, too,
            as pendulum's and DDPG's ``tau``, is the environment's all the same; a warning says so
            unless ``algorithm`` or ``policies`` are settings.

    On a CPU torch computes on as many of its threads as the networks are worth, small ones on one,
    while this runs. Threads change the order of sums in its large matrix products, and with it the
    last bits of a run; kernels' bits stay.

    Results do not depend on autocast, inference mode, disabled gradients, or torch's default device
    and dtype. While this runs, the default dtype is float32 in the whole process. Several threads
    may train at once.

    Inside a process group of ``torch.distributed`` all processes call this with the same arguments
    and train one run together: each steps a share of the environments, and gradients are added. The
    first one writes, prints and calls back. Exact kernels give the same weights with any number of
    processes.

    Raises:
        ParameterError: If settings do not fit each other or the environment, an argument would be
            ignored, or processes that train together were given different ones.
        NotFiniteError: If a loss, reward or observation is not finite. Its words say what came
            first; ``explain()`` of its attribute ``run`` tells more, and with ``out`` so does
            ``explanation.txt`` there.
        TrainingError: If a folder cannot be used.
        MemoryLimitError: If it does not fit into memory.
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
                "train: seeds= and members= begin several runs in one process; name the "
                "environment, and start one process"
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
    if run.step >= config.steps:  # resume=True, of a run that is done
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
    """Return the configuration with which ``train`` continues a run; arguments as there.

    Raises:
        ParameterError: If an argument is wrong, or one of those that the run brings itself.
    """
    own = {name: options[name] for name in ("num_envs", "seed", "backend", "resume")}
    device = options.pop("device")
    refuse_for_run(run, {"algorithm": algorithm, "policies": policies} | own, params, device)
    found: dict[str, Any] = validated("train", TrainConfig, drop_none(options))
    if found["out"] is not None:
        check_kept(run.settings)
    return replace(run.config, **found | {"steps": goal_of(run, found.get("steps"))})
