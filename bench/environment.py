"""Facts about the machine and the software. What cannot be found out is None, never a guess."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "jax", "jaxlib", "libtpu", "transformers", "tokenizers", "numpy")


def software(packages: tuple[str, ...] = PACKAGES) -> dict[str, str | None]:
    """Versions of Python and of the installed packages; None for one that is not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def host() -> dict[str, Any]:
    """Name, CPU, cores that this process may use, memory in bytes and operating system."""
    return {
        "name": socket.gethostname() or None,
        "cpu_model": cpu_model(),
        "cpu_cores": available_cores(),
        "memory_bytes": memory_limit_bytes(),
        "os": platform.platform() or None,
        "machine": platform.machine() or None,
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's name, e.g. "Intel(R) Xeon(R) CPU @ 2.80GHz"."""
    try:
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "Hardware") and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or None


def available_cores() -> int | None:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _meminfo_bytes(key: str, meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max" means no limit
        return None


def memory_limit_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """The machine's memory, or the container's limit if that is less."""
    total = _meminfo_bytes("MemTotal", meminfo)
    limit = _number(cgroup / "memory.max")
    known = [value for value in (total, limit) if value is not None]
    return min(known) if known else None


def available_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory that can still be had without swapping, within the container's limit."""
    free = _meminfo_bytes("MemAvailable", meminfo)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    known = [free] if free is not None else []
    if limit is not None and used is not None:
        known.append(max(0, limit - used))
    return min(known) if known else None


def git_commit(folder: Path | None = None) -> str | None:
    """The commit of the checkout that this package lies in, with "-dirty" if files are changed.

    None outside a checkout: an installed package must not report the commit of whatever
    repository happens to surround it.
    """
    folder = folder or Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cache_dir(configured: str | None = None) -> Path:
    """Where preparations are kept: as configured, else below the user's cache folder."""
    if configured:
        return Path(configured).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torchtpu-bench"
