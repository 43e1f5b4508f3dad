"""train(): policies learn in thousands of environments; on a GPU whole iterations replay as one CUDA graph."""

from contextlib import nullcontext

import torch

from cupydrive.errors import ParameterError, TrainingError
from cupydrive.executors.ranks import current_ranks
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_callable,
    checked_count,
    checked_float,
    checked_int,
    checked_path,
)
from cupydrive.inputs.files import file_errors
from cupydrive.training.frozen import check_kept
from cupydrive.training.members import check_capture, plan_population, train_alone, train_members
from cupydrive.training.misplaced import warn_of_two_meanings
from cupydrive.training.outfolder import check_folder, check_free, check_own, check_single, refuse_for_run
from cupydrive.training.plan import begin_run, goal_of, plan, replaced
from cupydrive.training.policies import warn_if_never_learning, warn_if_nobody_learns
from cupydrive.training.ranks import require_equal
from cupydrive.training.run import Run


def train(
    env,
    algorithm=None,
    *,
    policies=None,
    steps=None,
    num_envs=None,
    seed=None,
    seeds=None,
    members=None,
    device="auto",
    out=None,
    resume=False,
    overwrite=False,
    progress=True,
    capture=None,
    callback=None,
    checkpoint_minutes=5.0,
    keep=3,
    learner=None,
    **params,
):
    """Train policies and return the ``Run``, or a ``Population`` of runs; an interrupt (Ctrl-C) keeps the result so far.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``; or a ``Run`` that is to go on, which brings all
            that it was made of.
        algorithm: ``PPO(...)``, ``A2C(...)``, their names, or None: what the environment suggests. Each group gets a policy
            of its own.
        policies: Settings by group name instead, such as ``{"tagger": PPO(), "runner": Heuristic()}``; groups joined by
            ``+``, such as ``"tagger+runner"``, share one policy. Where nobody learns a warning says so.
        steps: Env-steps in all, rounded up to whole iterations; None: as many as the environment suggests for the algorithm.
            For a ``Run``: more of them, default up to its total.
        num_envs: N; None: as many as the environment suggests for the algorithm.
        seed: Of everything random; None: 0.
        seeds: A number of runs that differ in their seeds, ``seed``, ``seed + 1``, ...; or a list or range of seeds, without
            ``seed``. The result is a ``Population``, and ``num_envs`` and ``steps`` are of each run. Runs of equal shapes that
            learn by kernels share their launches.
        members: A list of runs that differ in settings or parameters, as dictionaries of what each changes, such as
            ``[{"learning_rate": 1e-3}, {"gamma": 0.9}]``; with ``seeds``, each with all of them, and then none has
            a ``seed`` of its own. What does not fit one of them is an error that names it, before any is trained or a folder is
            made.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        out: Folder for configuration, metrics and checkpoints; of a population, for a folder ``000``, ``001``, ... of each run.
            None: nothing is written.
        resume: Go on with the run in ``out`` up to ``steps`` in all, or begin it where there is none: a script may run again
            and again. A run that is done is returned as it is. What is given here must be what that run was made of.
        overwrite: Replace a run in ``out``; other files there stay.
        progress: Show one progress line.
        capture: Replay iterations as a CUDA graph. None: on a GPU, unless several processes exchange through gloo. False runs
            the same code with the same numbers.
        callback: ``callback(step, metrics)`` after each logged interval. If it returns True, training ends within the next
            iterations, and the result is kept as after Ctrl-C: early stopping. If it raises, the exception goes on to the
            caller, and the run up to then is written to ``out``; without ``out`` the exception's attribute ``run`` is the
            ``Run``. In a population ``metrics`` also has the number of the run, ``"member"``.
        checkpoint_minutes: Time between checkpoints, if ``out`` is given; one is always written at the end.
        keep: Checkpoints to keep, at least 1.
        learner: What PPO and A2C compute with. ``"kernels"``: compiled for the network, for the default one with tanh or
            ReLU. ``"torch"``: torch's operations, for every network. ``"auto"``, which is meant by None: kernels where they
            apply, unless ``precision`` is one of torch's. ``Run.choices`` says what each policy got, and why.
        **params: Parameters of the environment. One whose name is a setting of the algorithm, too, as pendulum's and DDPG's
            ``tau``, is the environment's all the same; a warning says so unless ``algorithm`` or ``policies`` are settings.

    On a CPU torch computes on as many of its threads as the networks are worth, small ones on one, while this runs. Threads
    change the order of sums in its large matrix products, and with it the last bits of a run; kernels' bits stay.

    Results do not depend on autocast, inference mode, disabled gradients, or torch's default device and dtype. While this runs,
    the default dtype is float32 in the whole process. Several threads may train at once.

    Inside a process group of ``torch.distributed`` all processes call this with the same arguments and train one run together:
    each steps a share of the environments, and gradients are added. The first one writes, prints and calls back. Exact kernels
    give the same weights with any number of processes.

    Raises:
        ParameterError: If settings do not fit each other or the environment, an argument would be ignored, or processes that
            train together were given different ones.
        NotFiniteError: If a loss, reward or observation is not finite. Its words say what came first; ``explain()`` of its
            attribute ``run`` tells more, and with ``out`` so does ``explanation.txt`` there.
        TrainingError: If a folder cannot be used.
        MemoryLimitError: If it does not fit into memory.
    """
    keep = checked_int("train", "keep", keep)
    minutes = checked_float("train", "checkpoint_minutes", checkpoint_minutes, 0.0)
    progress, resume, overwrite = (
        checked_bool("train", name, value)
        for name, value in (("progress", progress), ("resume", resume), ("overwrite", overwrite))
    )
    capture = None if capture is None else checked_bool("train", "capture", capture)
    if callback is not None:
        checked_callable("train", "callback", callback, takes=("step", "metrics"))
    out = None if out is None else checked_path("train", "out", out)
    if out is not None:
        with file_errors(TrainingError, f"out = {str(out)!r} cannot be used"):
            check_folder(out, written=not resume)
    steps = None if steps is None else checked_count("train", "steps", steps)
    if out is None and (resume or overwrite):
        raise ParameterError(f"train: {'resume' if resume else 'overwrite'}=True needs out=, the folder of the run")
    if resume and overwrite:
        raise ParameterError(
            "train: resume=True goes on with the run in out, overwrite=True replaces it; pass one of them"
        )
    given = {
        "algorithm": algorithm,
        "policies": policies,
        "num_envs": num_envs,
        "seed": seed,
        "learner": learner,
        **params,
    }
    loop = {"capture": capture, "checkpoint_seconds": minutes * 60, "keep": keep}
    ranks = current_ranks()
    if not ranks.alone and (seeds is not None or members is not None):
        raise ParameterError(
            f"train: seeds= and members= train several runs in one process, and {ranks.size} processes train one run here; "
            "leave them out, or start one process"
        )
    if seeds is not None or members is not None:
        planned = plan_population(env, given, seeds, members, device, resume)
        for of_one in {str(member.plan.policies): member.plan.policies for member in planned}.values():
            warn_if_nobody_learns(planned[0].plan.spec.name, of_one)
        warn_of_two_meanings(env, params, algorithm, policies)
        where = {"out": out, "resume": resume, "overwrite": overwrite}
        return train_members(planned, steps, progress, callback, where, loop)
    if out is not None:
        check_single(out)
    if isinstance(env, Run):
        run = env
        made_of = {name: given[name] for name in ("algorithm", "policies", "num_envs", "seed", "learner")}
        refuse_for_run(run, made_of | {"resume": resume}, params, device)
        goal = goal_of(run, steps)
        if out is not None:
            check_kept(run.settings)
    else:
        new = plan(env, **given, device=device, resume=resume)
        warn_of_two_meanings(env, params, algorithm, policies)
        run, goal = begin_run(new, given, steps, out, resume)
    check_capture(capture, ranks.captures(run.device))
    require_equal(ranks, about(run, goal, out, capture, keep))
    if run.step >= goal:  # resume=True, of a run that is done
        return run
    if out is not None:
        check_own(out)
        if not overwrite:
            check_free(run, out)
    warn_if_nobody_learns(run.spec.name, run.settings)
    warn_if_never_learning([(run, goal)])
    first = ranks.rank == 0
    call = None if callback is None or not first else lambda step, row, number: callback(step, row)
    with replaced(run, out) if overwrite and first else nullcontext():
        train_alone(run, goal, out, progress and first, call, **loop)
    return run


def about(run, goal, out, capture, keep):
    """Return by name, as JSON can hold it, what processes that train one run together must agree on."""
    config = run.config()
    config |= config.pop("params") | {f"policy {name}": kept for name, kept in config.pop("policies").items()}
    versions = {"torch": torch.__version__, "device": run.device, "step": run.step, "steps": goal}
    given = {"out": None if out is None else str(out), "capture": capture, "keep": keep}
    return config | versions | given | {f"choice for {name}": words for name, words in run.choices.items()}
