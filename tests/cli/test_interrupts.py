"""Ctrl-C ends the command line also where a kernel never comes back, and nothing else that still
answers; SIGTERM saves.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading

import pytest
from conftest import command, python_path

from cupydrive import load
from cupydrive.cli import interrupts
from cupydrive.training.logbook import Logbook
from cupydrive.training.processes import handled

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="a process on Windows gets no SIGINT from another"
)

# A mutex that its own thread locks again never comes back, as little as a kernel's loop without an
# end.
STUCK = """
import ctypes, signal, sys
from cupydrive.cli import interrupts, main

def stuck() -> int:
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    signal.signal(signal.SIGINT, lambda number, frame: None)  # one that comes before the lock ends nothing
    lock(mutex)
    print("in native code", flush=True)
    lock(mutex)

interrupts.PATIENCE_SECONDS = 0.2
main.COMMANDS["info"] = stuck
sys.argv = ["cupydrive", "info"]
sys.exit(main.main())
"""


@pytest.mark.full
def test_ctrl_c_again_ends_a_process_that_does_not_come_back_from_native_code():
    environment = os.environ | {"PYTHONPATH": python_path()}
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "in native code\n"
            for _ in range(100):
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(0.1)
                    break
                except subprocess.TimeoutExpired:  # as a person does: once more
                    continue
            assert process.poll() == 130
            said = process.stderr.read()
        finally:
            process.kill()
    assert (
        said.count("\n") == 1
        and "has not returned for 0.2 s" in said
        and "all saved files are kept" in said
    )


def test_a_main_thread_that_runs_python_answers():
    found = []
    thread = threading.Thread(target=lambda: found.append(interrupts.answers(60.0)))
    thread.start()
    while thread.is_alive():
        thread.join(0.01)
    assert found == [True]


def test_the_handler_stays():
    before = signal.getsignal(signal.SIGINT)
    with interrupts.ended_if_stuck():
        assert signal.getsignal(signal.SIGINT) is before
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.set_wakeup_fd(-1) == -1


def test_a_process_in_the_background_of_a_shell_ends_by_sigterm():
    """Its SIGINT is ignored. Before training handles it, SIGTERM must not be ignored, too."""
    with (
        handled(signal.SIGINT, signal.SIG_IGN),
        interrupts.ended_as_by_ctrl_c(),
        pytest.raises(KeyboardInterrupt),
    ):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("times", [1, 2])
def test_a_training_that_is_told_to_terminate_is_saved(times, tmp_path, monkeypatch, capfd):
    """Slurm and Kubernetes send SIGTERM, now and then more than one, before they kill."""
    add = Logbook.add

    def add_and_terminate(book, step, *about):
        for _ in range(times):
            signal.raise_signal(signal.SIGTERM)
        return add(book, step, *about)

    monkeypatch.setattr(Logbook, "add", add_and_terminate)
    before = signal.getsignal(signal.SIGTERM)
    sizes = "--steps 640 --num-envs 4 --device cpu --set num_steps=4"
    assert command(f"train cartpole {sizes} --out {tmp_path / 'run'}") == 0
    assert 0 < load(tmp_path / "run").step < 640
    assert signal.getsignal(signal.SIGTERM) is before
    assert "Finishing this iteration" in capfd.readouterr().err


def test_ctrl_c_twice_says_what_is_kept(tmp_path, monkeypatch, capsys):
    def press_twice(book, *about):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Logbook, "add", press_twice)
    sizes = "--steps 640 --num-envs 4 --device cpu --set num_steps=4"
    assert command(f"train cartpole {sizes} --out {tmp_path / 'run'}") == 130
    assert "the last checkpoint is kept" in capsys.readouterr().err


HOST = r"""
#include <Python.h>
#include <signal.h>
static void mine(int number) { (void)number; }
int main(int count, char** given) {
  signal(SIGINT, mine);
  signal(SIGTERM, mine);
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  PyConfig_SetBytesString(&config, &config.program_name, given[1]);
  PyStatus status = Py_InitializeFromConfig(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
  const int code = PyRun_SimpleString(given[2]);
  return code != 0 || signal(SIGINT, SIG_IGN) != mine || signal(SIGTERM, SIG_IGN) != mine;
}
"""
IN_HOST = """
import signal
import cupydrive as cd
from cupydrive.cli.interrupts import ended_as_by_ctrl_c
from cupydrive.training.processes import start_processes
with ended_as_by_ctrl_c():
    run = cd.train("cartpole", cd.PPO(num_steps=32), num_envs=16, steps=1024, device="cpu", progress=False)
assert run.step == 1024 and start_processes(1, ["--version"]) == 0
"""


@pytest.mark.full
def test_a_program_that_has_python_inside_keeps_its_handlers(tmp_path):
    library, name = (
        sysconfig.get_config_var("LIBDIR"),
        f"python{sysconfig.get_config_var('LDVERSION')}",
    )
    if not sysconfig.get_config_var("Py_ENABLE_SHARED") or not shutil.which("gcc"):
        pytest.skip("no gcc, or this Python has no shared library")
    (tmp_path / "host.c").write_text(HOST)
    built = [
        "gcc",
        "host.c",
        "-o",
        "host",
        f"-I{sysconfig.get_path('include')}",
        f"-L{library}",
        f"-Wl,-rpath,{library}",
    ]
    subprocess.run([*built, f"-l{name}"], cwd=tmp_path, check=True)
    environment = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run(
        [tmp_path / "host", sys.executable, IN_HOST],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
