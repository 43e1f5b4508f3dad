"""train(): policies learn in thousands of environments; on a GPU whole iterations replay as one CUDA graph."""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from cupydrive import envs
from cupydrive.errors import ParameterError, TrainingError, did_you_mean
from cupydrive.executors import choose
from cupydrive.inputs.arguments import (
    checked_bool,
    checked_callable,
    checked_choice,
    checked_count,
    checked_float,
    checked_int,
    checked_path,
    shown,
)
from cupydrive.inputs.files import file_errors
from cupydrive.protocols import LearnerSettings
from cupydrive.terminal.progress import follow
from cupydrive.training.algorithms import ALGORITHMS
from cupydrive.training.algorithms.kernels.choice import LEARNERS
from cupydrive.training.frozen import checked_policies
from cupydrive.training.loop import Loop
from cupydrive.training.outfolder import check_folder, check_free, check_single, clear, refuse_for_run, resumed
from cupydrive.training.population import Population, member_folder, plan_members, write_members
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints
from cupydrive.training.torch_settings import memory_errors

DEFAULTS = {"algorithm": "ppo", "num_envs": 1024, "steps": 1_000_000}


@dataclass(frozen=True)
class Plan:
    """What a new run is made of, checked, before memory is taken; the arguments of ``Run`` but the device."""

    spec: object
    params: object
    policies: dict
    num_envs: int
    seed: int
    learner: str


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
            ``+``, such as ``"tagger+runner"``, share one policy.
        steps: Env-steps in all, rounded up to whole iterations; for a ``Run``: more of them, default up to its total.
        num_envs: N.
        seed: Of everything random; None: 0.
        seeds: A number of runs that differ in their seeds, ``seed``, ``seed + 1``, ...; or a list of seeds. The result is a
            ``Population``, and ``num_envs`` and ``steps`` are of each run.
        members: A list of runs that differ in settings or parameters, as dictionaries of what each changes, such as
            ``[{"learning_rate": 1e-3}, {"gamma": 0.9}]``; with ``seeds``, each with all of them.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        out: Folder for configuration, metrics and checkpoints; of a population, for a folder ``000``, ``001``, ... of each run.
            None: nothing is written.
        resume: Go on with the run in ``out`` up to ``steps`` in all, or begin it where there is none: a script may run again
            and again. A run that is done is returned as it is. What is given here must be what that run was made of.
        overwrite: Replace a run in ``out``; other files there stay.
        progress: Show one progress line.
        capture: Replay iterations as a CUDA graph; None: on a GPU. False runs the same code with the same numbers.
        callback: ``callback(step, metrics)`` after each logged interval. If it raises, the exception goes on to the caller,
            and the run up to then is written to ``out``; without ``out`` the exception's attribute ``run`` is the ``Run``.
            In a population ``metrics`` also has the number of the run, ``"member"``.
        checkpoint_minutes: Time between checkpoints, if ``out`` is given; one is always written at the end.
        keep: Checkpoints to keep, at least 1.
        learner: What PPO and A2C compute with. ``"kernels"``: compiled for the network, for the default one with tanh or
            ReLU. ``"torch"``: torch's operations, for every network. ``"auto"``, which is meant by None: kernels where they
            apply, unless ``precision`` is one of torch's. ``Run.choices`` says what each policy got, and why.
        **params: Parameters of the environment.

    On a CPU torch computes on as many of its threads as the networks are worth, small ones on one, while this runs. Threads
    change the order of sums in its large matrix products, and with it the last bits of a run; kernels' bits stay.

    Raises:
        ParameterError: If settings do not fit each other or the environment, or an argument would be ignored.
        TrainingError: If a loss, reward or observation is not finite, or a folder cannot be used.
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
        checked_callable("train", "callback", callback)
    out = None if out is None else checked_path("train", "out", out)
    if out is not None:
        with file_errors(TrainingError, f"out = {str(out)!r} cannot be used"):
            check_folder(out)
    steps = None if steps is None else checked_count("train", "steps", steps)
    if out is None and (resume or overwrite):
        raise ParameterError(f"train: {'resume' if resume else 'overwrite'}=True needs out=, the folder of the run")
    if resume and overwrite:
        raise ParameterError(
            "train: resume=True goes on with the run in out, overwrite=True replaces it; pass one of them"
        )
    if seeds is not None or members is not None:
        given = {"seed": seed, "num_envs": num_envs, "learner": learner, **params}
        loop = {
            "resume": resume,
            "overwrite": overwrite,
            "capture": capture,
            "checkpoint_minutes": minutes,
            "keep": keep,
        }
        planned = planned_members(env, algorithm, policies, given, seeds, members)
        return train_members(env, planned, steps, out, progress, callback, {**loop, "device": device})
    if out is not None:
        check_single(out)
    if isinstance(env, Run):
        run = env
        made_of = {"algorithm": algorithm, "policies": policies, "num_envs": num_envs, "seed": seed, "resume": resume}
        made_of["learner"] = learner
        refuse_for_run(run, made_of, params, device)
        goal = run.total if steps is None else run.step + steps
        if goal is None or run.step >= goal:
            raise ParameterError(f"the run has done its {run.step:,} env-steps; pass steps= for more")
    else:
        new = plan(env, algorithm, policies=policies, num_envs=num_envs, seed=seed, learner=learner, **params)
        where, _ = choose(device)
        goal = steps or suggestions(env)["steps"]
        if resume and checkpoints(out):
            made_of = {
                "policies": policies or algorithm,
                "num_envs": num_envs,
                "seed": seed,
                "learner": learner,
                **params,
            }
            with memory_errors():
                run = resumed(out, env, new, [name for name, value in made_of.items() if value is not None], where)
            goal = steps or run.total or goal
        else:
            with memory_errors():
                run = Run(new.spec, new.params, new.policies, new.num_envs, new.seed, where, new.learner)
    if capture and run.device != "cuda":
        raise ParameterError("capture=True needs device='cuda'; leave it out")
    if run.step >= goal:  # resume=True, of a run that is done
        return run
    if out is not None and not overwrite:
        check_free(run, out)
    run.total = max(goal, run.total or 0)
    loop = Loop(
        run, goal, out, progress, run.device == "cuda" if capture is None else capture, callback, minutes * 60, keep
    )
    with replaced(run, out) if overwrite else nullcontext():
        loop.go()
    return run


def planned_members(env, algorithm, policies, given, seeds, members):
    """Return the ``Member``s of a population, each of which could be trained; the other arguments are those of ``train``."""
    if isinstance(env, Run):
        raise ParameterError(
            "train(run, seeds=..., members=...): a population begins anew; pass the environment's name"
        )
    common = plan(env, algorithm, policies=policies, **given)
    settings = policies or (
        algorithm if isinstance(algorithm, LearnerSettings) else suggested_algorithm(env, algorithm)
    )
    planned = plan_members(common.spec, settings, given, seeds, members, partial(suggested_algorithm, env))
    for member in planned:
        plan(env, **member.arguments)  # raises what is wrong before anything is trained
    return planned


def train_members(env, planned, steps, out, progress, callback, loop):
    """Train runs one after another and return their ``Population``: those that were begun, if an interrupt comes.

    Args:
        env: As of ``train``.
        planned: ``Member``s.
        steps: Of each.
        out: Folder, or None.
        progress: Show one progress line for all.
        callback: As of ``train``, or None.
        loop: Further arguments of ``train``.
    """
    goal = steps or suggestions(env)["steps"]
    if out is not None:
        write_members(out, planned, loop["resume"], loop["overwrite"])
    line = follow(goal * len(planned), f"train {len(planned)} x {envs.get(env).name}", progress)
    runs, words = [], None

    def tell(step, metrics):
        line.update(len(runs) * goal + min(step, goal), metrics)
        if callback is not None:
            callback(step, {**metrics, "member": len(runs)})

    try:
        for number, member in enumerate(planned):
            folder = None if out is None else member_folder(out, number)
            arguments = {**member.arguments, **loop, "steps": goal, "callback": tell, "out": folder, "progress": False}
            runs.append(train(env, **arguments))
            if runs[-1].step < goal:
                raise KeyboardInterrupt
    except KeyboardInterrupt:  # between two runs it has not been noted
        if not runs:
            raise
        words = f"interrupted in run {len(runs)} of {len(planned)}; the result is kept"
    finally:
        line.close(words)
    return Population(runs, [member.setting for member in planned[: len(runs)]])


@contextmanager
def replaced(run, out):
    """Hold the lock of ``out``, once the run that it held has been removed."""
    with file_errors(TrainingError, f"the run cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with run.lock.hold(out):
        clear(out)
        yield


def suggestions(env):
    """Return how the environment suggests to train it, defaults where it says nothing."""
    return {**DEFAULTS, **envs.get(env).training}


def suggested_algorithm(env, name=None, /, **changed):
    """Return the settings that the environment suggests for the algorithm called ``name``, by default the one it suggests.

    Args:
        env: Name, path of a Python file, or ``EnvSpec``.
        name: ``"ppo"``, ``"a2c"``, ``"ddpg"`` or None.
        **changed: Settings that differ.
    """
    suggested = suggestions(env)
    name = (name or suggested["algorithm"]).lower()
    if name not in ALGORITHMS:
        raise ParameterError(
            f"there is no algorithm {shown(name)}.{did_you_mean(name, ALGORITHMS)} There are: {', '.join(ALGORITHMS)}"
        )
    kind = ALGORITHMS[name]
    return kind(**{**suggested.get(name, {}), **changed})


def plan(env, algorithm=None, *, policies=None, num_envs=None, seed=None, learner=None, **params):
    """Return the ``Plan`` of the run that ``train`` would begin; arguments as there."""
    spec, suggested = envs.get(env), suggestions(env)
    made = spec.make_params(**params)
    seed = checked_int("train", "seed", 0 if seed is None else seed, 0, 2**63 - 1)
    num_envs = checked_int("train", "num_envs", suggested["num_envs"] if num_envs is None else num_envs)
    groups = [g.name for g in spec.groups(made)]
    if policies is not None and algorithm is not None:
        raise ParameterError("pass algorithm, or policies by group, not both")
    if policies is None:
        if algorithm is None or isinstance(algorithm, str):
            algorithm = suggested_algorithm(env, algorithm)
        if isinstance(algorithm, type) or not isinstance(algorithm, LearnerSettings):
            raise ParameterError(
                f"algorithm = {shown(algorithm)}; it must be PPO(...), A2C(...), DDPG(...) or their names"
            )
        policies = dict.fromkeys(groups, algorithm)
    checked_policies(policies, groups)
    check_modules(policies)
    learner = checked_choice("train", "learner", "auto" if learner is None else learner, LEARNERS)
    return Plan(spec, made, policies, num_envs, seed, learner)


def make_run(env, algorithm=None, *, device="auto", **options):
    """Return the ``Run`` that ``train`` would train, before its first step; arguments as there."""
    new = plan(env, algorithm, **options)
    return Run(new.spec, new.params, new.policies, new.num_envs, new.seed, choose(device)[0], new.learner)


def check_modules(policies):
    """Raise ``ParameterError`` if one module is the network of several policies: each would train a copy of its own."""
    owners = {}
    for name, settings in policies.items():
        module = getattr(settings, "policy", None)
        if isinstance(module, torch.nn.Module) and owners.setdefault(id(module), name) != name:
            both = f"{owners[id(module)]}+{name}"
            raise ParameterError(
                f"policies {owners[id(module)]!r} and {name!r} have one and the same module; if they are to share it pass "
                f"policies={{{both!r}: ...}}, else give each its own, or pass its class or a function (obs_dim, size) -> module"
            )
