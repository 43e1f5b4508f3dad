"""Programs are compiled side by side, and each once: by all threads and processes together."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import python_path

import cupydrive as cd
from cupydrive import envs
from cupydrive.algorithms.kernels import learner
from cupydrive.codegen.layout import Layout
from cupydrive.codegen.source import assemble, kernel_text
from cupydrive.errors import CompileError
from cupydrive.executors.ahead import build_ahead
from cupydrive.executors.compiler import compiler
from cupydrive.executors.host import HostExecutor
from cupydrive.training.begin import make_run

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LOAD = """
import sys
from cupydrive import envs
from cupydrive.executors.host import HostExecutor
spec = envs.get("cartpole")
HostExecutor().load(spec, spec.make_params())
"""


@pytest.mark.full
def test_processes_that_need_the_same_program_compile_it_once(tmp_path):
    log = tmp_path / "log"
    wrapper = tmp_path / "c++"
    command, _ = compiler()
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *unit.cpp*) echo compiled >> {log};; esac\nexec {" ".join(command)} "$@"\n'
    )
    wrapper.chmod(0o755)
    environment = {
        "PYTHONPATH": python_path(),
        "CXX": str(wrapper),
        "CUPYDRIVE_CACHE": str(tmp_path / "cache"),
    }
    started = [
        subprocess.Popen([sys.executable, "-c", LOAD], env=os.environ | environment)
        for _ in range(4)
    ]
    assert [process.wait(100) for process in started] == [0] * 4
    assert log.read_text().splitlines() == ["compiled"]


@pytest.mark.full
def test_what_a_learner_needs_is_begun_ahead_and_nothing_else(monkeypatch):
    """Only what every rollout has, and the first launch of all, is built in its turn."""
    begun, built, real = [], [], HostExecutor.build
    monkeypatch.setattr(
        learner, "build_ahead", lambda work: begun.extend(unit.text for _, unit in work)
    )
    monkeypatch.setattr(
        HostExecutor, "build", lambda self, unit: built.append(unit) or real(self, unit)
    )
    make_run(
        "pendulum", cd.A2C(normalize_obs=True, distribution="squashed"), num_envs=8, device="cpu"
    )
    others = {unit.name for unit in built if unit.text not in begun}
    assert set(begun) <= {unit.text for unit in built}
    assert others - {"fused"} == {"pendulum", "finite", "carry", "advantages", "episodes"}


def test_what_cannot_be_built_ahead_is_an_error_where_it_is_needed():
    spec = envs.get("cartpole")
    wrong = replace(spec, kernel=kernel_text(spec)[1].replace("s.x += p.tau", "s.x += p.nothing"))
    unit = assemble(wrong, wrong.make_params(), Layout())
    build_ahead([(HostExecutor(), unit)])
    with pytest.raises(CompileError, match="nothing"):
        HostExecutor().build(unit)
