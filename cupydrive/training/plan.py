"""What a run is made of: the arguments of ``train``, completed by what the environment suggests, and checked."""

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch

import cupydrive
from cupydrive import envs
from cupydrive.errors import CupydriveWarning, ParameterError, TrainingError
from cupydrive.executors import choose, executor
from cupydrive.inputs.arguments import checked_choice, checked_int
from cupydrive.inputs.files import file_errors
from cupydrive.training.algorithms.kernels.choice import LEARNERS
from cupydrive.training.frozen import check_kept
from cupydrive.training.misplaced import setting_hints
from cupydrive.training.outfolder import clear, resumed
from cupydrive.training.policies import learning_settings, make_players
from cupydrive.training.run import Run
from cupydrive.training.runfolder import checkpoints
from cupydrive.training.suggestions import suggested_algorithm, suggested_sizes
from cupydrive.training.torch_settings import drawing_from, memory_errors


@dataclass(frozen=True)
class Plan:
    """What a new run is made of, checked, before memory is taken: the arguments of ``Run``.

    Attributes:
        steps: Env-steps that the environment suggests for it.
    """

    spec: object
    params: object
    policies: dict
    num_envs: int
    seed: int
    device: str
    learner: str
    steps: int

    def run(self, share=1):
        """Return the ``Run`` before its first step; ``share`` is how many runs will share the device.

        Raises:
            MemoryLimitError: If it does not fit into memory.
        """
        made_of = self.spec, self.params, self.policies, self.num_envs, self.seed, self.device, self.learner
        try:
            with memory_errors():
                return Run(*made_of, share)
        except ParameterError as error:
            # Of a network of one's own: the way to where it was tried says nothing to its author.
            raise error.with_traceback(None) from error.__cause__


def plan(
    env, algorithm=None, *, policies=None, num_envs=None, seed=None, learner=None, device="auto", resume=False, **params
):
    """Return the ``Plan`` of the run that ``train`` would begin; arguments as there.

    Everything is checked that takes no memory and runs nothing of the caller's: whether minibatches divide the rows, learner
    and precision fit each other, an algorithm fits the actions. What is found out only when a ``Run`` is made is whether it
    fits into memory, compiles, and what networks of one's own return.

    With ``resume`` a run's folder may say what is not given here; then nobody knows yet how many rows there are.
    """
    spec = envs.get(env)
    spec.require_known(params, cupydrive.train, setting_hints(env, params, algorithm, policies))
    made = spec.make_params(**params)
    seed = checked_int("train", "seed", 0 if seed is None else seed, 0, 2**63 - 1)
    num_envs = None if num_envs is None else checked_int("train", "num_envs", num_envs)
    groups = [g.name for g in spec.groups(made)]
    known = not resume or (num_envs is not None and not (algorithm is None and policies is None))
    settings = learning_settings(algorithm, policies, groups, partial(suggested_algorithm, env))
    policies = settings if isinstance(settings, dict) else dict.fromkeys(groups, settings)
    learner = checked_choice("train", "learner", "auto" if learner is None else learner, LEARNERS)
    device = choose(device)[0]
    sizes = suggested_sizes(env, policies)
    num_envs = sizes.num_envs if num_envs is None else num_envs
    with drawing_from(torch.Generator()), warnings.catch_warnings():
        warnings.simplefilter("ignore", CupydriveWarning)  # about files: the run says the same
        make_players(spec, made, policies, num_envs if known else None, executor(device), learner)
    return Plan(spec, made, policies, num_envs, seed, device, learner, sizes.steps)


def begin_run(new, given, steps=None, out=None, resume=False, share=1):
    """Return the ``Run`` that ``train`` goes on with or begins, and up to how many env-steps it is to be trained.

    Args:
        new: ``Plan`` of the run that would begin.
        given: What the plan was made from: arguments of ``plan`` by name, None where they were not given.
        steps: Env-steps in all; None: what the run's folder or the environment says.
        out: Folder, or None.
        resume: Go on with the run in ``out``, if there is one.
        share: How many runs will share the device.
    """
    if out is not None:
        check_kept(new.policies)
    if not (resume and checkpoints(out)):
        return new.run(share), steps or new.steps
    made_of = {name: value for name, value in given.items() if value is not None}
    made_of |= dict.fromkeys({"policies"} if "algorithm" in made_of else ())
    with memory_errors():
        run = resumed(out, new, list(made_of), share)
    return run, steps or run.total or suggested_sizes(run.spec, run.settings).steps


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


def make_run(env, algorithm=None, **options):
    """Return the ``Run`` that ``train`` would train, before its first step; arguments as there."""
    return plan(env, algorithm, **options).run()
