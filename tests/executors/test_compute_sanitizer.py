"""compute-sanitizer finds nothing: the script of that name, as a slow test of a machine
with a GPU.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.skipif(
    shutil.which("compute-sanitizer") is None,
    reason="compute-sanitizer is part of the CUDA toolkit",
)
def test_memcheck_racecheck_and_synccheck_find_nothing():
    script = Path(__file__).resolve().parents[1] / "tools" / "compute_sanitizer.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
