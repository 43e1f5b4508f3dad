"""The magic ``%%cuda_env NAME``, which compiles a notebook cell as a kernel.

``%load_ext cupydrive`` registers it.
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cupydrive import envs
from cupydrive.errors import CupydriveError, did_you_mean
from cupydrive.executors import choose, executor
from cupydrive.simulation.batch import Batch
from cupydrive.spec import EnvSpec

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def cuda_env(line: str, cell: str, namespace: dict[str, Any]) -> None:
    """Compile a cell's text as the kernel of the environment named ``line``.

    Args:
        line: Name of the environment. An ``EnvSpec`` with this name must be a variable of the
            notebook, or be registered.
        cell: CUDA C++ text, starting at the second line of the cell.
        namespace: Variables of the notebook.

    Raises:
        CupydriveError: If there is no such ``EnvSpec``, or the kernel does not compile. The message
            refers to lines of the cell.
    """
    name = line.strip()
    found = {
        v.name: v for k, v in namespace.items() if isinstance(v, EnvSpec) and not k.startswith("_")
    }
    if name not in found:
        if name not in envs.names():
            words = f"it has: {', '.join(found)}" if found else "it has none yet"
            raise CupydriveError(
                f"%%cuda_env {name or 'NAME'}: this notebook has no EnvSpec with this name, "
                f"{words}.{did_you_mean(name, found)} First run a cell with SPEC = "
                f"cd.EnvSpec({name or 'NAME'!r}, ...)"
            )
        found[name] = envs.get(name)
    # An empty line replaces the magic, so that line numbers are those of the cell.
    spec = replace(found[name], kernel="\n" + cell)
    device, _ = choose()
    start = time.perf_counter()
    Batch(spec, 1, executor=executor(device))
    seconds = time.perf_counter() - start
    envs.register(spec)
    print(
        f"{name}: compiled for {device} in {seconds:.2f} s. Use it with cd.make({name!r}) or "
        f"env.reload()"
    )


def register_magics(ipython: "InteractiveShell") -> None:
    """Register ``%%cuda_env``, when called by ``%load_ext cupydrive``."""

    def in_one_line(line: str, cell: str) -> None:
        try:
            cuda_env(line, cell, ipython.user_ns)
        except CupydriveError as error:
            said = f"{type(error).__name__}: {error}"
            error._render_traceback_ = lambda: [said]  # type: ignore[attr-defined]  # IPython shows this instead of the frames of this package
            raise

    ipython.register_magic_function(in_one_line, "cell", "cuda_env")
