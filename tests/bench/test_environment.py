"""Facts on the machine: found or None."""

from __future__ import annotations

import subprocess

from bench import environment


def test_what_is_not_installed_is_none():
    versions = environment.software(("torch", "no-such-package"))
    assert versions["torch"]
    assert versions["python"]
    assert versions["no-such-package"] is None


def test_the_host_is_described():
    host = environment.host()
    assert host["cpu_cores"] >= 1
    assert set(host) == {"name", "cpu_model", "cpu_cores", "memory_bytes", "os", "machine"}


def test_unreadable_files_give_none(tmp_path):
    nothing = tmp_path / "nothing"
    assert environment.memory_limit_bytes(nothing, tmp_path) is None
    assert environment.available_memory_bytes(nothing, tmp_path) is None


def test_a_container_limit_counts(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  1000 kB\nMemAvailable:  800 kB\n")
    assert environment.memory_limit_bytes(meminfo, tmp_path) == 1000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert environment.available_memory_bytes(meminfo, tmp_path) == 800 * 1024
    (tmp_path / "memory.max").write_text("512000\n")
    (tmp_path / "memory.current").write_text("500000\n")
    assert environment.memory_limit_bytes(meminfo, tmp_path) == 512000
    assert environment.available_memory_bytes(meminfo, tmp_path) == 12000


def test_the_commit_is_that_of_the_package_only(tmp_path):
    assert environment.git_commit(tmp_path) is None

    def git(*arguments):
        name = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    assert environment.git_commit(tmp_path) is None
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "one")
    commit = environment.git_commit(tmp_path)
    assert len(commit) == 40
    (tmp_path / "file").write_text("2")
    assert environment.git_commit(tmp_path) == f"{commit}-dirty"
    package = tmp_path / "site-packages"
    package.mkdir()
    assert environment.git_commit(package) is None


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_dir() == tmp_path / "torchtpu-bench"
    assert environment.cache_dir("/elsewhere").as_posix() == "/elsewhere"
