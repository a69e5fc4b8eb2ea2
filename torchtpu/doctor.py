"""``python -m torchtpu.doctor``: what was found, what is wrong, and how to mend it.

The device is tried in a child process: a runtime that crashes or hangs is then a finding too, and
this process imports neither torch nor JAX. Exit code 0 only if the device computes.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import importlib.util
import json
import os
import resource
import stat
import subprocess
import sys
import textwrap
from dataclasses import asdict, dataclass, field

from torchtpu import config as settings
from torchtpu.errors import ConfigError
from torchtpu.runtime.chips import tpu_device_files

# The torch releases that are supported: at least the first, below the second.
TORCH_VERSIONS = ((2, 11), (2, 16))
ENTRY_POINT_GROUP = "torch.backends"
DEFAULT_TIMEOUT_S = 180
_MARK = "torchtpu-doctor-probe:"
_MIB = 2**20

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class Row:
    """One line of the findings. status: ok, note (worth knowing) or wrong. mend: what to do."""

    name: str
    value: str
    status: str = OK
    mend: str = ""


@dataclass
class Probe:
    """What the child process found. error: why the device does not compute, or None."""

    error: str | None = None
    mend: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    describe: str = ""


# -- without torch: versions, plug-in, hardware, environment -----------------------------------------


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, int]:
    """(major, minor) of a version text such as "2.13.0+cpu"."""
    major, minor = version.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def torch_row(version: str | None) -> Row:
    """Whether this torch is there and supported."""
    low, high = (".".join(map(str, v)) for v in TORCH_VERSIONS)
    mend = f'pip install "torch>={low},<{high}"'
    if version is None:
        return Row("torch", "not installed", WRONG, mend)
    if TORCH_VERSIONS[0] <= _release(version) < TORCH_VERSIONS[1]:
        return Row("torch", f"{version} (supported: >={low},<{high})")
    return Row("torch", f"{version} is not supported (>={low},<{high} is)", WRONG, mend)


def software_rows() -> list[Row]:
    """Python and the packages."""
    rows = [Row("Python", f"{sys.version.split()[0]} ({sys.executable})")]
    rows.append(Row("torchtpu", _version("torchtpu") or "not installed; imported from its source"))
    rows.append(torch_row(_version("torch")))
    for package in ("jax", "jaxlib"):
        version = _version(package)
        rows.append(
            Row(package, version)
            if version
            else Row(package, "not installed", WRONG, "pip install jax")
        )
    if importlib.util.find_spec("libtpu") is not None:
        rows.append(Row("libtpu", _version("libtpu") or "present, version unknown"))
    elif tpu_device_files():
        rows.append(Row("libtpu", "not installed", WRONG, 'pip install "torchtpu[tpu]"'))
    else:
        rows.append(Row("libtpu", "not installed (needed only where there is a TPU)"))
    return rows


def plugin_rows(environment: dict[str, str]) -> list[Row]:
    """Whether `import torch` finds torchtpu by itself, and nothing else in its place."""
    entry_points = {
        e.name: e.value for e in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    }
    rows = []
    if "tpu" in entry_points:
        rows.append(Row(f"entry point {ENTRY_POINT_GROUP}", f"tpu = {entry_points.pop('tpu')}"))
    else:
        rows.append(
            Row(
                f"entry point {ENTRY_POINT_GROUP}",
                "not installed: `import torch` does not find the tpu device",
                NOTE,
                "pip install torchtpu (in a checkout: pip install -e .), or call "
                "torchtpu._autoload() after `import torch`",
            )
        )
    if environment.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0":
        rows.append(
            Row(
                "autoload",
                "off (TORCH_DEVICE_BACKEND_AUTOLOAD=0)",
                NOTE,
                "unset TORCH_DEVICE_BACKEND_AUTOLOAD, or call torchtpu._autoload() after "
                "`import torch`",
            )
        )
    else:
        rows.append(Row("autoload", "on"))
    for name, value in sorted(entry_points.items()):
        rows.append(
            Row(
                "another backend",
                f"{name} = {value} loads with torch too",
                NOTE,
                "if it takes PyTorch's one slot for outside devices, uninstall it",
            )
        )
    return rows


def _access(path: str) -> Row:
    name = f"device file {path}"
    try:
        mode = os.stat(path)
    except OSError as error:
        return Row(name, f"cannot be looked at ({error.strerror})", WRONG, "check the container")
    what = f"{stat.filemode(mode.st_mode)} uid {mode.st_uid} gid {mode.st_gid}"
    if os.access(path, os.R_OK | os.W_OK):
        return Row(name, f"readable and writable ({what})")
    return Row(
        name,
        f"this user (uid {os.getuid()}) may not read and write it ({what})",
        WRONG,
        f"run as root, or join the group with gid {mode.st_gid}; in a container: --privileged, or "
        f"--device={path}",
    )


def hardware_rows() -> list[Row]:
    """TPU chips of this host and whether this user may use them."""
    files = tpu_device_files()
    if not files:
        return [Row("TPU chips", "none (no /dev/accel* and no numbered /dev/vfio/*)")]
    rows = [Row("TPU chips", f"{len(files)} device file(s)")]
    rows += [_access(path) for path in files]
    if any(path.startswith("/dev/vfio/") for path in files):
        if os.path.exists("/dev/vfio/vfio"):
            rows.append(_access("/dev/vfio/vfio"))
        limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        if limit != resource.RLIM_INFINITY:
            rows.append(
                Row(
                    "locked memory limit",
                    f"{limit / _MIB:.0f} MiB: transfers through vfio lock host memory",
                    NOTE,
                    "ulimit -l unlimited; in a container: --ulimit memlock=-1",
                )
            )
    return rows


def environment_rows(environment: dict[str, str]) -> list[Row]:
    """Every variable that changes how torchtpu works: the set ones, then the others' meaning."""
    rows = []
    for name, value in environment.items():
        meaning = settings.VARIABLES.get(name, "")
        if name.startswith("TORCHTPU_") and not meaning:
            near = difflib.get_close_matches(name, settings.VARIABLES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(settings.VARIABLES)}"
            rows.append(Row(name, f"{value} (torchtpu reads no such variable)", NOTE, hint))
            continue
        error = _setting_error(name)
        if error:
            rows.append(Row(name, value or '""', WRONG, error))
        else:
            rows.append(Row(name, f"{value}  [{meaning}]" if meaning else value))
    rows += [
        Row(name, f"not set  [{meaning}]")
        for name, meaning in settings.VARIABLES.items()
        if name not in environment
    ]
    return rows


def _setting_error(variable: str) -> str:
    """What is wrong with the value of one of torchtpu's variables; empty if nothing is."""
    try:
        settings.check(variable)
    except ConfigError as error:
        return str(error)
    return ""


# -- the device itself, in a child process -------------------------------------------------------------


def probe() -> Probe:
    """Start the device and compute on it. Runs in the child process."""
    found = Probe()
    try:
        import torch

        import torchtpu

        torchtpu._autoload()
    except Exception as error:
        # torch wraps what a backend raises while it loads.
        cause = error.__cause__ or error
        found.error = f"the device could not be registered: {_one_line(cause)}"
        return found
    from torchtpu import metrics
    from torchtpu.runtime import client

    try:
        found.facts["PJRT platform"] = ": ".join(client.choose_platform())
        client.device()
    except Exception as error:
        cause = error.__cause__ or error
        found.error = f"the device could not be started: {_one_line(cause)}"
        found.mend = _mend_start(error)
        return found
    try:
        found.describe = client.describe()
        properties = torch.tpu.get_device_properties()
        found.facts["device"] = properties.name
        if properties.total_memory:
            found.facts["device memory"] = f"{properties.total_memory / _MIB:.0f} MiB"
        found.facts["PJRT version"] = properties.platform_version.replace("\n", " ")
        found.facts["chips that this process sees"] = str(
            len(client.device().client.local_devices())
        )
        found.facts["computation"] = _compute(torch)
        found.facts["executable cache"] = (
            f"{metrics.compiles()} programs compiled in {metrics.compile_time_s():.2f} s, kept in "
            "memory until the process ends"
        )
        import jax

        folder = jax.config.jax_compilation_cache_dir
        found.facts["persistent compile cache"] = (
            folder or "off (JAX_COMPILATION_CACHE_DIR=DIR switches it on)"
        )
    except Exception as error:
        found.error = f"the device does not compute: {_one_line(error)}"
    return found


def _compute(torch) -> str:
    """A forward and backward pass on the device and on the CPU. Raises RuntimeError if they
    differ."""
    weight = torch.linspace(-1, 1, 64 * 32).reshape(64, 32)
    inputs = torch.linspace(0, 1, 16 * 64).reshape(16, 64).sin()
    results = []
    for device in ("cpu", "tpu"):
        w = weight.to(device, copy=True).requires_grad_()
        loss = (inputs.to(device) @ w).softmax(1).square().sum()
        loss.backward()
        results.append((loss.detach().cpu(), w.grad.cpu()))
    for on_cpu, on_tpu in zip(*results, strict=True):
        difference = (on_cpu - on_tpu).abs().max().item()
        if not difference <= 1e-4 * on_cpu.abs().max().item():
            raise RuntimeError(
                f"a matrix product, softmax and gradient differ from the CPU's by {difference:.3g}"
            )
    return "matrix product, softmax and their gradient agree with the CPU"


def _mend_start(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return ""  # the message says it
    text = str(error)
    platform = settings.config.platform
    if "XRT_TPU_CONFIG" in text:
        return "correct or unset XRT_TPU_CONFIG"
    if "already in use" in text or "lockfile" in text:
        return "one process at a time drives a chip: end the other one, or give each its own chip"
    if platform == "tpu" and not tpu_device_files():
        return (
            "this machine has no TPU: unset TORCHTPU_PLATFORM (the CPU is used then), or run on a "
            "TPU machine"
        )
    if platform == "cuda":
        return 'install JAX\'s CUDA plug-in (pip install "jax[cuda12]"), or unset TORCHTPU_PLATFORM'
    return "set TORCHTPU_PLATFORM=cpu to go on without it"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RuntimeError) else f"{type(error).__name__}: {text}"


def run_probe(timeout_s: float) -> Probe:
    """Run :func:`probe` in a child process; a crash or a hang is a finding."""
    command = [sys.executable, "-m", "torchtpu.doctor", "--probe"]
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe(
            error=f"the device did not compute within {timeout_s:g} s",
            mend="end other processes that hold the TPU, or give --timeout more seconds",
        )
    for line in child.stdout.splitlines():
        if line.startswith(_MARK):
            return Probe(**json.loads(line.removeprefix(_MARK)))
    last = [line.strip() for line in child.stderr.splitlines() if line.strip()][-3:]
    ended = f"signal {-child.returncode}" if child.returncode < 0 else f"code {child.returncode}"
    return Probe(
        error=f"the process that used the device ended with {ended}: {' / '.join(last)}",
        mend="TORCHTPU_PLATFORM=cpu shows whether the rest works",
    )


# -- output ----------------------------------------------------------------------------------------------


def _print_plain(sections: dict[str, list[Row]]) -> None:
    width = max(len(row.name) for rows in sections.values() for row in rows)
    for title, rows in sections.items():
        print(title)
        for row in rows:
            mark = {OK: "  ", NOTE: "- ", WRONG: "! "}[row.status]
            print(f"  {mark}{row.name:<{width}}  {row.value}")
        print()


def _print_rich(sections: dict[str, list[Row]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    width = max(len(row.name) for rows in sections.values() for row in rows)
    for title, rows in sections.items():
        console.print(Text(title, style="bold"))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=1)
        table.add_column(min_width=width, no_wrap=True)
        table.add_column(overflow="fold")
        for row in rows:
            mark, style = {OK: ("✓", "green"), NOTE: ("-", "yellow"), WRONG: ("✗", "red")}[
                row.status
            ]
            table.add_row(
                Text(mark, style=style),
                Text(row.name, style="" if row.status == OK else style),
                Text(row.value),
            )
        console.print(table)
        console.print()


def show(sections: dict[str, list[Row]], found: Probe) -> None:
    """Findings, then what is wrong with how to mend it, then the verdict."""
    rich_is_there = importlib.util.find_spec("rich") is not None
    (_print_rich if sys.stdout.isatty() and rich_is_there else _print_plain)(sections)
    advice = [row for rows in sections.values() for row in rows if row.mend]
    for status, title in ((WRONG, "What is wrong"), (NOTE, "Worth knowing")):
        chosen = [row for row in advice if row.status == status]
        if chosen:
            print(title)
            for row in chosen:
                print(_wrapped(f"{row.name}: {row.value}", "  * "))
                print(_wrapped(f"-> {row.mend}", "    "))
            print()
    if found.error:
        print(f"The tpu device does NOT compute: {found.error}")
        if found.mend:
            print(f"-> {found.mend}")
    else:
        print(f"The tpu device computes. It is {found.describe}.")


def _wrapped(text: str, start: str) -> str:
    return textwrap.fill(
        text,
        100,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def main(arguments: list[str] | None = None) -> int:
    """Examine, print, and return the exit code: 0 if the device computes, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m torchtpu.doctor",
        description="Say what the tpu device was found to be, what is wrong, and how to mend it. "
        "Exit code 0 only if the device computes.",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long the device may take to compute (default: {DEFAULT_TIMEOUT_S})",
    )
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.probe:
        print(_MARK + json.dumps(asdict(probe())))
        return 0
    environment = settings.environment()
    found = run_probe(options.timeout)
    device = [Row(name, value) for name, value in found.facts.items()]
    if found.error:
        device.append(Row("computation", found.error, WRONG, found.mend))
    show(
        {
            "Software": software_rows(),
            "PyTorch plug-in": plugin_rows(environment),
            "Hardware": hardware_rows(),
            "Environment variables": environment_rows(environment),
            "Device": device,
        },
        found,
    )
    return 1 if found.error else 0


if __name__ == "__main__":
    sys.exit(main())
