"""The command line's configuration: Hydra composes it; its mistakes become one clear message.

Overrides are checked one by one before Hydra sees them, because its own errors are meant for the
author of a configuration. Reads YAML only; imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bench.options import UsageError, one_of

REQUIRED = ("workload", "device")
# Keys that a file of a group holds for the harness, not for the user to set.
_INTERNAL = ("name", "scales")
CONFIG_NAME = "config"


def config_dir() -> Path:
    """The configuration in the installed package, else the one beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / f"{CONFIG_NAME}.yaml").is_file():
            return folder
    raise UsageError(f"no configuration: neither {package / 'conf'} nor {package.parent / 'conf'}")


def groups(folder: Path | None = None) -> dict[str, list[str]]:
    """The groups that a run selects from, and the choices of each."""
    folder = folder or config_dir()
    used = [name for name, _ in _defaults(folder)]
    return {name: sorted(p.stem for p in (folder / name).glob("*.yaml")) for name in used}


def load_config(overrides: list[str], folder: Path | None = None) -> dict[str, Any]:
    """The resolved configuration as plain data. Raises UsageError."""
    folder = folder or config_dir()
    choices = groups(folder)
    parsed = [_parse(text) for text in overrides]
    selecting = [o for o in parsed if o.key_or_group in choices]
    for override in selecting:
        _check_choice(override, choices)
    for name in REQUIRED:
        if not any(o.key_or_group == name for o in selecting):
            raise UsageError(f"{name}=... is missing; valid: {', '.join(choices[name])}")
    with initialize_config_dir(str(folder), version_base="1.3"):
        known = _compose([o.input_line for o in selecting])
        for override in parsed:
            if override not in selecting:
                _check_key(override, known, choices)
        config = _compose(overrides)
    return _resolve(config)


def _parse(text: str) -> Override:
    try:
        (override,) = OverridesParser.create().parse_overrides([text])
    except HydraException:
        raise UsageError(
            f"cannot read {text!r}; give key=value, with quotes around values that hold spaces, "
            "commas, '=' or brackets: \"key='a b'\""
        ) from None
    if override.is_sweep_override():
        raise UsageError(f"{text!r} holds several values; one run takes one value for each key")
    if override.is_add() or override.is_force_add() or override.is_delete():
        raise UsageError(f"{text!r}: keys can be set (key=value), not added or removed")
    return override


def _check_choice(override: Override, choices: Mapping[str, list[str]]) -> None:
    group = override.key_or_group
    value = override.value()
    for name in value if isinstance(value, list) else [value]:
        if str(name) not in choices[group]:
            valid = one_of(str(name), choices[group])
            raise UsageError(f"{group}={'' if name is None else name}: unknown {group}; {valid}")


def _check_key(override: Override, known: DictConfig, choices: Mapping[str, list[str]]) -> None:
    """Raise UsageError unless every part of the dotted key is there."""
    node: Any = known
    seen: list[str] = []
    for part in override.key_or_group.replace("/", ".").split("."):
        if not isinstance(node, DictConfig) or part not in node or part in _INTERNAL:
            where = ".".join(seen)
            if isinstance(node, DictConfig):
                names = [str(k) for k in node if k not in _INTERNAL]
                names += [] if seen else sorted(set(choices) - set(names))
                valid = one_of(part, names)
            else:
                valid = f"{where} is a single value"
            raise UsageError(f"{override.key_or_group}: no such key; {valid}")
        seen.append(part)
        # Not by item access: that would resolve an interpolation or refuse a missing value.
        node = node._get_node(part)
    if isinstance(node, DictConfig) and not isinstance(override.value(), dict):
        keys = ", ".join(f"{override.key_or_group}.{k}" for k in node)
        raise UsageError(f"{override.key_or_group}: is a group of keys; set {keys or 'none'}")


def _compose(overrides: list[str]) -> DictConfig:
    try:
        return compose(CONFIG_NAME, overrides=overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(_one_line(error)) from None


def _resolve(config: DictConfig) -> dict[str, Any]:
    try:
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise UsageError(f"{missing[0]}=... is missing: it has no default")
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UsageError(_one_line(error)) from None


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:2]) or type(error).__name__


def _defaults(folder: Path) -> Iterator[tuple[str, Any]]:
    """(group, default choice) of config.yaml, in its order."""
    for entry in OmegaConf.load(folder / f"{CONFIG_NAME}.yaml").defaults:
        if isinstance(entry, DictConfig):
            for name, value in entry.items_ex(resolve=False):
                if not str(name).startswith("override "):
                    yield str(name), None if value == "???" else value


# --- help ----------------------------------------------------------------------------------------

_HELP = """\
usage: python -m bench workload=NAME device=NAME [key=value ...]

Runs one workload on one device, checks its losses against native PyTorch on the CPU, and writes
record.json into a new directory under runs/.

{groups}

Keys of config.yaml (set with key=value):
{keys}

Keys of a group, with what they mean:  python -m bench workload=NAME device=NAME --help
The configuration that a run would use: python -m bench workload=NAME device=NAME --cfg

Examples:
  python -m bench workload=bert_large device=tpu
  python -m bench workload=bert_large device=cpu scale=smoke
  python -m bench workload=bert_large device=cuda workload.batch_size=32 device.precision=bf16
  python -m bench workload=bert_large device=tpu workload.data.path=my_text.txt
  python -m bench.reports runs/* --out report

Exit codes: 0 done; 1 the run failed; 2 wrong input or no such device; 130 interrupted.
"""


def help_text(overrides: list[str]) -> str:
    """The help; with groups selected, the files of those groups, comments and all."""
    folder = config_dir()
    choices = groups(folder)
    picked = []
    for text in overrides:
        override = _parse(text)
        if override.key_or_group in choices:
            _check_choice(override, choices)
            value = override.value()
            names = value if isinstance(value, list) else [value]
            picked += [(override.key_or_group, str(name)) for name in names]
    if picked:
        parts = [
            f"{group}={name}\n{_indent((folder / group / f'{name}.yaml').read_text('utf-8'))}"
            for group, name in picked
        ]
        return "\n\n".join(parts)
    defaults = dict(_defaults(folder))
    lines = ["Groups (choose with group=name):"]
    for name, valid in choices.items():
        default = defaults[name]
        default = ", ".join(default) if not isinstance(default, str | None) else default
        note = "required" if default is None else f"default: {default}"
        shown = ", ".join(valid) if len(valid) <= 8 else f"{', '.join(valid[:8])}, ..."
        lines.append(f"  {name:<9} {shown}  ({note})")
    text = (folder / f"{CONFIG_NAME}.yaml").read_text("utf-8")
    body = text.split("\n\n", 1)[1].split("\n# Hydra itself", 1)[0]
    return _HELP.format(groups="\n".join(lines), keys=_indent(body))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.strip().splitlines())


def to_yaml(config: Mapping[str, Any]) -> str:
    """The configuration as YAML text."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))
