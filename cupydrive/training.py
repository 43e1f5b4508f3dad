"""train(): policies learn in thousands of environments; on a GPU whole iterations replay as one CUDA graph."""

from contextlib import contextmanager
from pathlib import Path

import torch

from cupydrive import envs
from cupydrive.algorithms import ALGORITHMS
from cupydrive.arguments import checked_int
from cupydrive.errors import MemoryLimitError, ParameterError, TrainingError, did_you_mean
from cupydrive.executors import choose
from cupydrive.loop import Loop
from cupydrive.run import Run
from cupydrive.runfolder import checkpoints, read_config

DEFAULTS = {"algorithm": "ppo", "num_envs": 1024, "steps": 1_000_000}


def train(
    env,
    algorithm=None,
    *,
    policies=None,
    steps=None,
    num_envs=None,
    seed=0,
    device="auto",
    out=None,
    progress=True,
    capture=None,
    callback=None,
    checkpoint_minutes=5.0,
    keep=3,
    **params,
):
    """Train policies and return the ``Run``; an interrupt (Ctrl-C) ends it early and keeps the result.

    Args:
        env: Name of an environment, path of its Python file, ``EnvSpec``; or a ``Run`` that is to go on.
        algorithm: ``PPO(...)``, ``A2C(...)``, their names, or None: what the environment suggests. Each group gets a policy
            of its own.
        policies: Settings by group name instead, such as ``{"tagger": PPO(), "runner": Heuristic()}``; groups joined by
            ``+``, such as ``"tagger+runner"``, share one policy.
        steps: Env-steps in all, rounded up to whole iterations; for a ``Run``: more of them, default up to its total.
        num_envs: N.
        seed: Of everything random.
        device: ``"cuda"``, ``"cpu"`` or ``"auto"``.
        out: Folder for configuration, metrics and checkpoints; None: nothing is written.
        progress: Show one progress line.
        capture: Replay iterations as a CUDA graph; None: on a GPU. False runs the same code with the same numbers.
        callback: ``callback(step, metrics)`` after each logged interval.
        checkpoint_minutes: Time between checkpoints, if ``out`` is given; one is always written at the end.
        keep: Checkpoints to keep, at least 1.
        **params: Parameters of the environment.

    Raises:
        ParameterError: If settings do not fit each other or the environment.
        TrainingError: If a loss, reward or observation is not finite, or a folder cannot be used.
        MemoryLimitError: If it does not fit into memory.
    """
    keep = checked_int("train", "keep", keep)
    with memory_errors():
        return _train(
            env, algorithm, policies, steps, num_envs, seed, device, out, progress, capture, callback,
            checkpoint_minutes, keep, params,
        )  # fmt: skip


def _train(
    env, algorithm, policies, steps, num_envs, seed, device, out, progress, capture, callback, minutes, keep, params
):
    if isinstance(env, Run):
        run = env
        goal = run.step + checked_int("train", "steps", whole(steps)) if steps else run.total
        if run.step >= goal:
            raise ParameterError(f"the run has done its {run.total:,} env-steps; pass steps= for more")
    else:
        goal = checked_int("train", "steps", whole(steps if steps is not None else suggestions(env)["steps"]))
        run = make_run(env, algorithm, policies=policies, num_envs=num_envs, seed=seed, device=device, **params)
    if out is not None:
        check_folder(run, out)
    run.total = max(goal, run.total or 0)
    if capture is None:
        capture = run.device == "cuda"
    if capture and run.device != "cuda":
        raise ParameterError("capture=True needs device='cuda'; leave it out")
    Loop(run, goal, out, progress, capture, callback, minutes * 60, keep).go()
    return run


def whole(number):
    """Return floats such as 1e6 as ints."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def suggestions(env):
    """Return how the environment suggests to train it, defaults where it says nothing."""
    return {**DEFAULTS, **envs.get(env).training}


def suggested_algorithm(env, name=None, **changed):
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
            f"there is no algorithm {name!r}.{did_you_mean(name, ALGORITHMS)} There are: {', '.join(ALGORITHMS)}"
        )
    kind = ALGORITHMS[name]
    return kind(**{**suggested.get(name, {}), **changed})


def make_run(env, algorithm=None, *, policies=None, num_envs=None, seed=0, device="auto", **params):
    """Return the ``Run`` that ``train`` would train, before its first step; arguments as there."""
    spec, suggested = envs.get(env), suggestions(env)
    made = spec.make_params(**params)
    seed = checked_int("train", "seed", seed, 0, 2**63 - 1)
    groups = [g.name for g in spec.groups(made)]
    if policies is not None and algorithm is not None:
        raise ParameterError("pass algorithm, or policies by group, not both")
    if policies is None:
        if algorithm is None or isinstance(algorithm, str):
            algorithm = suggested_algorithm(env, algorithm)
        policies = dict.fromkeys(groups, algorithm)
    for name, settings in policies.items():
        if not hasattr(settings, "learner") and not hasattr(settings, "player"):
            raise ParameterError(
                f"policies[{name!r}] = {settings!r}; it must be PPO(...), A2C(...), Heuristic(), Random() or Frozen(path)"
            )
    check_modules(policies)
    where, _ = choose(device)
    return Run(spec, made, policies, num_envs if num_envs is not None else suggested["num_envs"], seed, where)


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


def check_folder(run, out):
    """Raise ``TrainingError`` if ``out`` holds another run than this one."""
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise TrainingError(f"out = {str(out)!r} is a file; pass a folder")
    if checkpoints(out) and run.folder != out:
        about = read_config(out)
        raise TrainingError(
            f"{out} holds a run of {about.get('env')!r} already; go on with it (--resume, or cupydrive.load(folder)), "
            "or pass another folder"
        )


@contextmanager
def memory_errors():
    """Turn what CuPy and torch raise when memory is short into ``MemoryLimitError``, which says what to lower."""
    try:
        yield
    except MemoryLimitError:
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MemoryLimitError(
            f"training does not fit into memory ({str(error).splitlines()[0]}); lower num_envs, num_steps, or the sizes of "
            "networks and replay buffers"
        ) from None
