"""Who may import whom, read off the syntax trees: nothing is imported here."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 600
# Files that may be longer, each with its reason.
LONG_FILES: dict[str, str] = {}

# What each part of torchtpu may import of torchtpu; a part is a module or a package. Part by part
# from the bottom up: a part imports only what stands above its own line, so there are no circles.
ENGINES = {"config", "dtypes", "program", "random", "runtime", "tensor", "lowerings.registry"}
TORCHTPU = {
    "errors": set(),
    "config": {"errors"},
    "dtypes": {"errors"},
    "lowerings": {"errors", "config", "dtypes"},
    "runtime": {"errors", "config", "dtypes"},
    "metrics": {"runtime"},
    "random": {"config", "dtypes", "runtime"},
    "program": {"errors", "config", "dtypes", "runtime", "lowerings.registry", "lowerings.view"},
    "tensor": {"errors", "config", "dtypes", "runtime", "program"},
    "engines": {"errors", *ENGINES, "lowerings.decompositions"},
    "fallback": {"errors", "config", "metrics"},
    "composites": {"errors", "config", "dtypes", "runtime", "program", "tensor"},
    "dispatch": {
        *("errors", "config", "dtypes", "lowerings", "runtime", "program", "tensor", "engines"),
        *("fallback", "composites"),
    },
    "autocast": set(),
    # These meet the dispatcher only inside functions: importing it imports JAX.
    "serialization": {"runtime", "tensor", "dispatch"},
    "upstream_patches": {"serialization"},
    "device_module": {
        *("errors", "config", "dtypes", "runtime", "metrics", "random", "autocast"),
        *("upstream_patches", "dispatch"),
    },
    "__init__": {"config", "metrics", "device_module"},
    # A program of its own: it looks at the package as a user does.
    "doctor": {"errors", "config", "runtime", "metrics", "__init__"},
}

# The same for bench. `options` (how options are declared and refused) is common to all.
BENCH = {
    "options": set(),
    "units": set(),
    "stats": set(),
    "interrupt": set(),
    "environment": set(),
    "discovery": {"options"},
    "config": {"options"},
    "record": {"units"},
    "cost": {"record", "stats", "units"},
    "terminal": {"record", "stats", "units"},
    "reports": {"record", "stats", "units", "cost"},
    "workloads": {"record", "stats", "options"},
    "devices": {"record", "stats", "options"},
    "meters": {"record", "stats", "options"},
    "parity": {"record", "stats", "options", "environment", "workloads.base"},
    "plan": {
        *("record", "options", "cost", "environment", "discovery", "parity"),
        *("workloads.base", "devices.base", "meters.base", "meters.time"),
    },
    "run": {
        *("record", "stats", "options", "environment", "parity", "plan"),
        *("workloads.base", "meters.time"),
    },
    "estimate": {"record", "stats", "units", "options", "environment", "workloads.base"},
    "claims": {"record", "stats", "units", "cost"},
    "__main__": {
        *("options", "config", "interrupt", "plan", "run", "terminal", "parity", "meters.time"),
        "estimate",
    },
    "__init__": set(),
}
RULES = {"torchtpu": TORCHTPU, "bench": BENCH}


def _files(package):
    return sorted((ROOT / package).rglob("*.py"))


def _module(path):
    """("torchtpu", "runtime", "client") of torchtpu/runtime/client.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts


def _exists(parts):
    path = ROOT.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").is_file()


def _imported(path):
    """Dotted names of the modules that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide who imports whom"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = node.module.split(".")[0] in RULES and _exists(full.split("."))
                names.add(full if is_module else node.module)
    return names


def _own_imports(package):
    """(importing file, its part, imported module inside the package as parts)."""
    for path in _files(package):
        part = _module(path)[1]
        for name in sorted(_imported(path)):
            parts = name.split(".")
            if parts[0] == package:
                yield path.relative_to(ROOT).as_posix(), part, tuple(parts[1:]) or ("__init__",)


@pytest.mark.parametrize("package", RULES)
def test_every_part_has_a_rule(package):
    parts = {_module(path)[1] for path in _files(package)}
    assert parts <= set(RULES[package]), "say in this file what the new part may import"


@pytest.mark.parametrize("package", RULES)
def test_parts_import_only_what_they_may(package):
    rules = RULES[package]
    wrong = []
    for path, part, target in _own_imports(package):
        if target[0] == part:
            continue
        if not any(target[: len(a)] == a for a in (tuple(r.split(".")) for r in rules[part])):
            wrong.append(f"{path} imports {package}.{'.'.join(target)}")
    assert not wrong


@pytest.mark.parametrize("package", RULES)
def test_rules_have_no_circles(package):
    seen = set()
    for part, allowed in RULES[package].items():
        if part in ("__init__", "doctor"):
            continue
        below = {name.split(".")[0] for name in allowed} - seen
        assert not below, f"{part} may import {below}, which stand below it"
        seen.add(part)


@pytest.mark.parametrize("family", ["workloads", "devices", "meters"])
def test_members_of_a_family_know_only_its_helpers(family):
    """A workload knows no other workload, a device no other device, a meter no other meter."""
    members = {p.stem for p in (ROOT / "conf" / family.removesuffix("s")).glob("*.yaml")}
    for path, part, target in _own_imports("bench"):
        if part == family and target[0] == family and len(target) > 1:
            assert target[1] not in members, f"{path} imports {target[1]}"


def test_torchtpu_never_imports_bench():
    for path in _files("torchtpu"):
        assert not [n for n in _imported(path) if n.split(".")[0] == "bench"], path


def test_only_the_tpu_device_and_the_estimates_import_torchtpu():
    for path in _files("bench"):
        where = path.relative_to(ROOT).as_posix()
        if where == "bench/devices/tpu.py" or where.startswith("bench/estimate/"):
            continue
        assert not [n for n in _imported(path) if n.split(".")[0] == "torchtpu"], where


def test_what_is_imported_with_torch_imports_no_jax():
    """The modules behind the entry point, and all they import outside functions."""
    todo, seen = [("torchtpu", "device_module")], set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        path = ROOT.joinpath(*module).with_suffix(".py")
        if not path.is_file():
            path = ROOT.joinpath(*module, "__init__.py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                assert name.split(".")[0] not in ("jax", "jaxlib"), f"{path} imports {name}"
                parts = tuple(name.split("."))
                if parts[0] == "torchtpu" and _exists(parts):
                    todo.append(parts)
    assert len(seen) > 5


@pytest.mark.parametrize("name", ["record.py", "stats.py", "cost.py", "units.py", "reports"])
def test_reading_results_needs_no_torch(name):
    path = ROOT / "bench" / name
    for file in [path] if path.is_file() else path.rglob("*.py"):
        assert not {n.split(".")[0] for n in _imported(file)} & {"torch", "jax", "torchtpu"}, file


def _uses(path, *dotted):
    """Lines on which one of these attribute chains ("os.environ") or bare names is used."""
    wanted = {tuple(name.split(".")) for name in dotted}
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        chain, inner = [], node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            chain.append(inner.id)
            if tuple(reversed(chain)) in wanted:
                lines.append(node.lineno)
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            lines += [node.lineno for a in node.names if ("os", a.name) in wanted]
    return lines


def test_only_config_reads_the_environment():
    for path in _files("torchtpu"):
        if path.relative_to(ROOT).as_posix() != "torchtpu/config.py":
            assert not _uses(path, "os.environ", "os.getenv", "os.putenv"), path


def test_only_the_dispatcher_binds_operators():
    """Library objects are made where operators are bound to keys, and nowhere else."""
    allowed = {"torchtpu/dispatch.py", "torchtpu/autocast.py", "torchtpu/device_module.py"}
    for path in _files("torchtpu"):
        if path.relative_to(ROOT).as_posix() not in allowed:
            assert not _uses(path, "torch.library.Library", "library.Library"), path


def test_lowerings_know_no_tensor_and_no_device():
    """Pure functions on arrays: of torch they use dtypes, schemas and, for shapes, meta tensors."""
    of_tensors = ("nn", "linalg", "where", "autograd", "no_grad", "is_grad_enabled", "autocast")
    for path in _files("torchtpu/lowerings"):
        assert not _uses(path, *(f"torch.{name}" for name in of_tensors)), path


def test_only_upstream_patches_sets_attributes_of_torch():
    for path in _files("torchtpu"):
        if path.name == "upstream_patches.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                inner = target
                while isinstance(inner, ast.Attribute):
                    inner = inner.value
                patched = isinstance(target, ast.Attribute) and isinstance(inner, ast.Name)
                assert not (patched and inner.id == "torch"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("package", RULES)
def test_files_are_split_by_subject_before_they_grow_long(package):
    for path in _files(package):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        where = path.relative_to(ROOT).as_posix()
        assert lines <= MAX_LINES or where in LONG_FILES, f"{where} has {lines} lines"
