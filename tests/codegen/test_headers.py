"""Headers beside a kernel: found from any folder, part of the kernel for errors, caches and
reloads; in any locale.
"""

import re
from dataclasses import replace
from pathlib import Path

import point
import pytest
import torch
from conftest import run_python
from test_compile_errors import message

import cupydrive as cd
from cupydrive import envs
from cupydrive.errors import SpecError
from cupydrive.executors.host import HostExecutor

ODD = [
    "plain",
    "it's # 1 % of",
    'the "new" one',
    "back\\slash",
    "copy (1)",
    "a: b",
    "line\nbreak",
    "{x} für",
]


def own_kernel(folder, header="DEVICE float moved(float x) { return x + 0.5f; }\n"):
    """Return the point environment with its files in a folder: a kernel, and two headers, one of
    which includes the other.
    """
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    (folder / "point.py").write_text(point.PYTHON, encoding="utf-8")
    kernel = point.KERNEL.replace(
        "DEVICE void reset", '#include "own.h"\nDEVICE void reset'
    ).replace("+= s.v;", "= moved(s.x);")
    (folder / "point.cu").write_text(f"// für ±1\n{kernel}", encoding="utf-8")
    (folder / "own.h").write_text('#pragma once\n#include "parts/move.h"\n', encoding="utf-8")
    (folder / "parts" / "move.h").write_text(
        f'#include "../own.h"  // ü\n{header}', encoding="utf-8"
    )
    return envs.register(folder / "point.py")


@pytest.mark.full
@pytest.mark.parametrize("name", ODD)
def test_a_kernel_in_any_folder_has_headers_of_its_own(name, tmp_path):
    env = cd.make(own_kernel(tmp_path / name), 2, device="cpu")
    env.reset(seed=0)
    before, digest = env.state["x"].clone(), envs.origin(env.spec)["kernel_sha256"]
    env.step(torch.zeros(2, 1))
    assert torch.equal(env.state["x"], before + 0.5)
    own_kernel(tmp_path / name, "DEVICE float moved(float x) { return x + 0.25f; }\n")
    assert env.reload()
    before = env.state["x"].clone()
    env.step(torch.zeros(2, 1))
    assert (
        torch.equal(env.state["x"], before + 0.25)
        and envs.origin(env.spec)["kernel_sha256"] != digest
    )


@pytest.mark.parametrize("where", ["cpu", "nvrtc", pytest.param("zig", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ODD)
def test_a_mistake_in_a_header_is_told_with_its_file_and_line(where, name, tmp_path, monkeypatch):
    said = message(
        own_kernel(tmp_path / name, "DEVICE float moved(float x) { return y; }\n"),
        where,
        monkeypatch,
    )
    place = f"{tmp_path / name / 'parts' / 'move.h'}:2: ".replace("\n", "?")
    assert place in said and said.endswith("    DEVICE float moved(float x) { return y; }"), said
    said = message(
        own_kernel(tmp_path / name, "DEVICE float moved(float x) { return sinf(x); }\n"),
        where,
        monkeypatch,
    )
    assert f"{place}`sinf` is not part of the dialect" in said


def test_a_header_must_lie_there_and_be_utf_8(tmp_path):
    spec, kernel = own_kernel(tmp_path), tmp_path / "point.cu"
    text = kernel.read_text(encoding="utf-8")
    for header, words in (
        (
            "nowhere.h",
            r"point.cu: include file 'nowhere.h' not found. Put your headers into the folder of the including file",
        ),
        ("latin.h", r"latin.h:2 is not UTF-8: got byte 0xfc. Save the file in the encoding UTF-8"),
    ):
        if header != "nowhere.h":
            (tmp_path / header).parent.mkdir(exist_ok=True)
            (tmp_path / header).write_bytes(
                "//\n// ü\n".encode("latin1" if header == "latin.h" else "utf-8")
            )
        kernel.write_text(text.replace("own.h", header), encoding="utf-8")
        with pytest.raises(SpecError, match=words):
            HostExecutor().load(replace(spec), spec.make_params())
    with pytest.raises(SpecError, match=r"'own.h' not found.* A kernel passed as text cannot"):
        HostExecutor().load(replace(spec, kernel=text), spec.make_params())


@pytest.mark.full
def test_a_header_without_a_guard_is_read_each_time(tmp_path):
    twice = '#define X(n) + n\n#include "n.def"\n#undef X\n#define X(n) + 10 * n\n#include "n.def"\n#undef X\n'
    guarded = '#ifndef __guard_h__\n#define __guard_h__\n#include "guard.h"\nconstexpr int ONE = 1;\n#endif\n'
    includes = '#if 0\n#include "guard.h"\n#endif\n#include "guard.h"\n#include "guard.h"\n'
    spec = own_kernel(
        tmp_path, f"{includes}DEVICE float moved(float x) {{ return x + (float)(0\n{twice}); }}\n"
    )
    (tmp_path / "parts" / "n.def").write_text("X(1) X(ONE + 1)\n")
    (tmp_path / "parts" / "guard.h").write_text(guarded)
    env = cd.make(spec, 1, device="cpu")
    env.reset(seed=0)
    before = env.state["x"].clone()
    env.step(torch.zeros(1, 1))
    # 10 * n is text: 10 * ONE + 1
    assert torch.equal(env.state["x"], before + (1 + 1 + 1 + 10 + 10 + 1))


@pytest.mark.full
def test_an_encoding_of_the_locale_changes_nothing(tmp_path):
    own_kernel(tmp_path / "für")
    program = "import sys, cupydrive as cd; print(cd.check(sys.argv[1], device='cpu', agent_steps=100, progress=False))"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run_python("-c", program, tmp_path / "für" / "point.py", **plain)
    assert done.returncode == 0 and "FAIL  point: state." in done.stdout, done.stderr


@pytest.mark.full
def test_the_header_of_the_dialects_page_compiles(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "dialect.md").read_text(encoding="utf-8")
    (header,) = re.findall(r'^```cuda title="vector\.cuh"\n(.*?)^```', page, re.M | re.S)
    use = f"{header}DEVICE float moved(float x) {{ const Vector v{{x, 0.0f}}; return (v + v).length(); }}\n"
    env = cd.make(own_kernel(tmp_path, use), 2, device="cpu")
    env.reset(seed=0)
    want = 2 * env.state["x"].abs()
    env.step(torch.zeros(2, 1))
    assert torch.equal(env.state["x"], want)
