"""cupydrive: reinforcement learning environments as CUDA kernels, run end to end on a GPU or on a CPU.

import cupydrive as cd
env = cd.make("tag_continuous", num_envs=2000)
obs, info = env.reset(seed=0)
print(cd.check("tag_continuous"))
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Imported on first use: `import cupydrive` needs neither torch nor CuPy.
_NAMES = {
    "checks.checker": ("check",),
    "cli.scaffold": ("new",),
    "envs": ("names", "register"),
    "executors.about": ("info",),
    "executors.python_kernels": ("PythonKernels",),
    "playing.evaluation": ("difference", "evaluate"),
    "playing.players": ("HeuristicPolicy", "RandomPolicy"),
    "playing.recording": ("Recording",),
    "experiments.tournament": ("Tournament", "tournament"),
    "profiling.profile": ("profile",),
    "profiling.tuner": ("best_num_envs", "tune"),
    "rendering.play": ("play",),
    "rendering.video": ("Video", "render"),
    "rendering.viewer": ("view",),
    "simulation.make": ("make",),
    "simulation.snapshots": ("Snapshot",),
    "simulation.trajectory": ("Trajectory",),
    "simulation.vector": ("VectorEnv",),
    "spec": (
        "Display",
        "EnvSpec",
        "Field",
        "Group",
        "Observation",
        "Reference",
        "StepResult",
        "Table",
        "nearest_decision",
        "param",
    ),
    "algorithms": ("A2C", "DDPG", "PPO", "OnPolicy"),
    "algorithms.pool": ("OpponentPool",),
    "training.config": ("TrainConfig",),
    "training.frozen": ("FrozenPolicy",),
    "experiments.population": ("Population", "interquartile_mean", "load"),
    "training.run": ("Run",),
    "training.suggestions": ("suggested_algorithm",),
    "experiments.sweep": ("Sweep", "sweep"),
    "experiments.train": ("train",),
    "errors": (
        *("CupydriveError", "CupydriveWarning", "ParameterError", "UnknownParameterError", "UnknownFieldError"),
        *("UnknownEpisodeError", "UnknownEnvironmentError", "UnregisteredEnvironmentError", "SpecError"),
        *("CompileError", "DeviceError", "TrainingError", "LostProcessError", "NotFiniteError", "RenderError"),
        *("SnapshotError", "ActionError", "KernelFault", "OrderError", "DataError", "MissingDataError"),
        "MemoryLimitError",
    ),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from cupydrive.errors import did_you_mean

        raise AttributeError(f"module 'cupydrive' has no attribute {name!r}.{did_you_mean(name, _HOME)}")
    return getattr(import_module(f"cupydrive.{_HOME[name]}"), name)


def load_ipython_extension(ipython: Any) -> None:
    """Make ``%%cuda_env`` known to a notebook; ``%load_ext cupydrive`` calls this."""
    import_module("cupydrive.cli.magic").load_ipython_extension(ipython)


def __dir__() -> list[str]:
    return sorted(__all__)
