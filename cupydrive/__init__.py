"""cupydrive: reinforcement learning environments as CUDA kernels, run end to end on a GPU or on a
CPU.

import cupydrive as cd
env = cd.make("tag_continuous", num_envs=2000)
obs, info = env.reset(seed=0)
print(cd.check("tag_continuous"))
"""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

# Modules by name, from the stub that editors read. `import cupydrive` needs neither torch nor CuPy.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME = {
    name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from cupydrive.errors import did_you_mean

        raise AttributeError(
            f"module 'cupydrive' has no attribute {name!r}.{did_you_mean(name, _HOME)}"
        )
    return getattr(import_module(_HOME[name]), name)


def load_ipython_extension(ipython: "InteractiveShell") -> None:
    """Make ``%%cuda_env`` known to a notebook; ``%load_ext cupydrive`` calls this."""
    import_module("cupydrive.cli.magic").register_magics(ipython)


def __dir__() -> list[str]:
    return sorted(__all__)
