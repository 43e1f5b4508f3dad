"""cupydrive: reinforcement learning environments as CUDA kernels, run end to end on a GPU or on a
CPU.

import cupydrive as cd
env = cd.make("tag_continuous", num_envs=2000)
obs, info = env.reset(seed=0)
print(cd.check("tag_continuous"))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# Modules by name, from the stub that editors read. `import cupydrive` needs neither torch nor CuPy.
with open(__file__.removesuffix(".py") + ".pyi", encoding="utf-8") as _stub:
    _lines = [line.split() for line in _stub if line.startswith("from cupydrive.")]
_HOME = {line[3]: line[1] for line in _lines}  # from MODULE import NAME as NAME
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from cupydrive.errors import did_you_mean

        raise AttributeError(
            f"module 'cupydrive' has no attribute {name!r}.{did_you_mean(name, _HOME)}"
        )
    return getattr(import_module(_HOME[name]), name)


def load_ipython_extension(ipython: "InteractiveShell") -> None:
    """Register ``%%cuda_env`` in a notebook. ``%load_ext cupydrive`` calls this."""
    import_module("cupydrive.cli.magic").register_magics(ipython)


def __dir__() -> list[str]:
    return sorted(__all__)
