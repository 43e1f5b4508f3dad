"""What lies in the cache folder is loaded only if it is whole, and only from a folder that its user
alone can write.
"""

import errno
import os
import tempfile
from pathlib import Path

import pytest
from conftest import run_python

import cupydrive as cd
from cupydrive.codegen.source import assemble_file
from cupydrive.errors import CupydriveWarning, DeviceError, ParameterError, TrainingError
from cupydrive.executors import cache, host
from cupydrive.executors.cache import cache_folder, cached_library, lock_of
from cupydrive.executors.host import HostExecutor
from cupydrive.inputs import sources
from cupydrive.inputs.arguments import checked_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "_loaded", {})
    return tmp_path / "cache"


def load(monkeypatch):
    """Load a small kernel as a new process does; return the library's path and its kernels."""
    monkeypatch.setattr(host, "_loaded", {})
    program = HostExecutor().build(assemble_file("train/shuffle"))
    return Path(program.library._name), set(program.functions)


DAMAGES = {
    "truncated": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "one bit": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    "longer": lambda whole: whole + b"\0",
    "another file": lambda whole: b"junk" * 9000,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_library_is_compiled_anew(folder, damage, monkeypatch):
    path, want = load(monkeypatch)
    kept = path.read_bytes()
    assert load(monkeypatch) == (path, want) and path.read_bytes() == kept  # from the cache
    # this process has the library mapped: what is written under its name must be another file
    path.unlink()
    path.write_bytes(DAMAGES[damage](kept))
    assert load(monkeypatch) == (path, want)
    assert path.read_bytes() != DAMAGES[damage](kept)


@pytest.mark.full
def test_the_library_of_another_kernel_is_not_taken_under_this_ones_name(folder, monkeypatch):
    path, want = load(monkeypatch)
    key = "another key"
    other = (
        folder
        / f"shuffle-{cache.hashlib.sha256(key.encode()).hexdigest()[:32]}-{path.name.rsplit('-', 1)[1]}"
    )
    os.rename(path, other)
    assert (
        cached_library("shuffle", key, lambda library: library.write_bytes(b"new")).read_bytes()
        == b"new"
    )
    assert not other.exists()
    assert load(monkeypatch) == (path, want)


def test_a_new_folder_is_the_users_alone_under_any_umask(folder):
    before = os.umask(0)
    try:
        assert cache_folder() == folder and folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777, 0o775])
def test_a_folder_that_others_can_write_is_refused(folder, mode, monkeypatch):
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(
        DeviceError, match=f"mode {mode & 0o7777:03o}, expected owner .*CUPYDRIVE_CACHE"
    ):
        load(monkeypatch)
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    load(monkeypatch)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away"
)
def test_another_users_folder_is_refused(folder, monkeypatch):
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with pytest.raises(DeviceError, match="got owner 12345 and mode 755, expected owner 0"):
        load(monkeypatch)


def test_dangling_and_relative_folders(monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    monkeypatch.setenv("CUPYDRIVE_CACHE", str(tmp_path / "link"))
    with pytest.warns(CupydriveWarning, match=r"cannot be written .*link"):
        assert cache_folder().is_dir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUPYDRIVE_CACHE", "here")
    # absolute: a later change of the folder moves nothing
    assert cache_folder() == tmp_path / "here"


def test_a_process_without_a_cache_folder_leaves_no_temporary_one(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    where = {
        "CUPYDRIVE_CACHE": str(tmp_path / "file" / "cache"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    program = "from cupydrive.executors.cache import cache_folder; print(cache_folder())"
    done = run_python("-W", "ignore", "-c", program, **where)
    assert done.stdout.startswith(where["TMPDIR"]), done.stderr
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("named", ["", "~no-such-user/cache"])
def test_without_a_home_folder_the_caches_are_temporary_ones(named, monkeypatch, tmp_path):
    def unknown(user):
        raise KeyError(user)

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("getpwuid", "getpwnam"):
        monkeypatch.setattr(f"pwd.{name}", unknown)
    monkeypatch.setenv("CUPYDRIVE_CACHE", named)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache._cache_folder.cache_clear()
    with pytest.warns(CupydriveWarning, match="cannot be written .*This process keeps"):
        assert cache_folder().parent == tmp_path
    cache._cache_folder.cache_clear()
    assert sources.data_folder().parent.parent == tmp_path
    with pytest.raises(ParameterError, match=r"out = '~/x': unknown home folder\. Pass"):
        checked_path("train", "out", "~/x")


def test_a_lock_is_free_again_after_an_error(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError), lock_of(tmp_path, "key"):
            raise KeyError


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_lock_that_only_saves_work_is_optional(tmp_path, number, monkeypatch):
    """Of a run's folder it is not: two writers would mix their checkpoints."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with lock_of(tmp_path, "key"):
        (tmp_path / "made").touch()
    with pytest.raises(
        TrainingError, match=r"cannot be locked for writing\. Pass a folder on a local disk: \w+"
    ):
        cd.train(
            "cartpole", num_envs=4, steps=1, device="cpu", progress=False, out=tmp_path / "run"
        )
