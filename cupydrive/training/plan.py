"""What a run is made of: the arguments of ``train``, completed by what the environment suggests, and checked."""

from contextlib import contextmanager
from dataclasses import dataclass

from cupydrive import envs
from cupydrive.errors import ParameterError, TrainingError, did_you_mean
from cupydrive.executors import choose
from cupydrive.inputs.arguments import checked_choice, checked_int, shown
from cupydrive.inputs.files import file_errors
from cupydrive.protocols import LearnerSettings
from cupydrive.training.algorithms import ALGORITHMS
from cupydrive.training.algorithms.kernels.choice import LEARNERS
from cupydrive.training.outfolder import clear, resumed
from cupydrive.training.policies import check_policies
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

    def run(self, device, share=1):
        """Return the ``Run`` before its first step, on ``"cuda"`` or ``"cpu"``.

        Raises:
            MemoryLimitError: If it does not fit into memory.
        """
        made_of = self.spec, self.params, self.policies, self.num_envs, self.seed
        with memory_errors():
            return Run(*made_of, device, self.learner, share)


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


def plan(env, algorithm=None, *, policies=None, num_envs=None, seed=None, learner=None, resume=False, **params):
    """Return the ``Plan`` of the run that ``train`` would begin; arguments as there.

    With ``resume`` a run's folder may say another ``num_envs`` than the suggested one, if none is given.
    """
    spec, suggested = envs.get(env), suggestions(env)
    made = spec.make_params(**params)
    seed = checked_int("train", "seed", 0 if seed is None else seed, 0, 2**63 - 1)
    certain = num_envs is not None or not resume
    num_envs = checked_int("train", "num_envs", suggested["num_envs"] if num_envs is None else num_envs)
    groups = spec.groups(made)
    if policies is not None and algorithm is not None:
        raise ParameterError("pass algorithm, or policies by group, not both")
    if policies is None:
        if algorithm is None or isinstance(algorithm, str):
            algorithm = suggested_algorithm(env, algorithm)
        if isinstance(algorithm, type) or not isinstance(algorithm, LearnerSettings):
            raise ParameterError(
                f"algorithm = {shown(algorithm)}; it must be PPO(...), A2C(...), DDPG(...) or their names"
            )
        policies = dict.fromkeys((g.name for g in groups), algorithm)
    check_policies(spec.name, groups, policies, num_envs if certain else None)
    learner = checked_choice("train", "learner", "auto" if learner is None else learner, LEARNERS)
    return Plan(spec, made, policies, num_envs, seed, learner)


def begin_run(env, given, steps=None, out=None, resume=False, device="auto", share=1):
    """Return the ``Run`` that ``train`` goes on with or begins, and up to how many env-steps it is to be trained.

    Args:
        env: As of ``train``.
        given: Arguments of ``plan`` by name, None where they were not given.
        steps: Env-steps in all; None: what the run's folder or the environment says.
        out: Folder, or None.
        resume: Go on with the run in ``out``, if there is one.
        device: As of ``train``.
        share: How many runs will share the device.
    """
    new = plan(env, **given, resume=resume)
    where, _ = choose(device)
    goal = steps or suggestions(env)["steps"]
    if not (resume and checkpoints(out)):
        return new.run(where, share), goal
    made_of = {name: value for name, value in given.items() if value is not None}
    made_of |= dict.fromkeys({"policies"} if "algorithm" in made_of else ())
    with memory_errors():
        run = resumed(out, env, new, list(made_of), where, share)
    return run, steps or run.total or goal


def goal_of(run, steps=None):
    """Return up to how many env-steps a run is to be trained that goes on: ``steps`` more, by default up to its total.

    Raises:
        ParameterError: If it has done them.
    """
    goal = run.total if steps is None else run.step + steps
    if goal is None or run.step >= goal:
        raise ParameterError(f"the run has done its {run.step:,} env-steps; pass steps= for more")
    return goal


@contextmanager
def replaced(run, out):
    """Hold the lock of ``out``, once the run that it held has been removed."""
    with file_errors(TrainingError, f"the run cannot be written to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with run.lock.hold(out):
        clear(out)
        yield


def make_run(env, algorithm=None, *, device="auto", **options):
    """Return the ``Run`` that ``train`` would train, before its first step; arguments as there."""
    return plan(env, algorithm, **options).run(choose(device)[0])
