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
_HOME = {
    "make": "simulation.make",
    "VectorEnv": "simulation.vector",
    "Trajectory": "simulation.trajectory",
    "check": "checks.checker",
    "train": "training.train",
    "suggested_algorithm": "training.suggestions",
    "tune": "simulation.tuner",
    "profile": "profiling",
    "best_num_envs": "training.num_envs",
    "Run": "training.run",
    "TrainConfig": "training.config",
    "Population": "training.population",
    "interquartile_mean": "training.population",
    "load": "training.population",
    "sweep": "training.sweep",
    "Sweep": "training.sweep",
    "FrozenPolicy": "training.frozen",
    "evaluate": "playing.evaluation",
    "difference": "playing.evaluation",
    "tournament": "playing.tournament",
    "Tournament": "playing.tournament",
    "Recording": "playing.recording",
    "Snapshot": "simulation.snapshots",
    "render": "rendering.video",
    "Video": "rendering.video",
    "view": "rendering.viewer",
    "play": "rendering.play",
    "PPO": "training.algorithms",
    "A2C": "training.algorithms",
    "DDPG": "training.algorithms",
    "OnPolicy": "training.algorithms",
    "OpponentPool": "training.algorithms.pool",
    "HeuristicPolicy": "playing.players",
    "RandomPolicy": "playing.players",
    "info": "executors.about",
    "new": "cli.scaffold",
    "names": "envs",
    "register": "envs",
    "PythonKernels": "executors.python_kernels",
    "EnvSpec": "spec",
    "Display": "spec",
    "Field": "spec",
    "Group": "spec",
    "Observation": "spec",
    "Reference": "spec",
    "StepResult": "spec",
    "Table": "spec",
    "nearest_decision": "spec",
    "param": "spec",
    **dict.fromkeys(
        (
            *("CupydriveError", "CupydriveWarning", "ParameterError", "UnknownParameterError", "UnknownFieldError"),
            *("UnknownEpisodeError", "UnknownEnvironmentError", "UnregisteredEnvironmentError", "SpecError"),
            *("CompileError", "DeviceError", "TrainingError", "LostProcessError", "NotFiniteError", "RenderError"),
            *("SnapshotError", "ActionError", "KernelFault", "OrderError", "DataError", "MissingDataError"),
            "MemoryLimitError",
        ),
        "errors",
    ),
}
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
