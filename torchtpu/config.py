"""Typed settings. This is the only module of torchtpu that reads the environment.

Each setting is read once, from its variable, at first use; tests and programs may assign to the
attributes of :data:`config`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from torchtpu.errors import ConfigError

PLATFORMS = ("tpu", "cpu", "cuda")
FALLBACK_MODES = ("allow", "warn", "error")
EAGER_MODES = ("strict", "debug")

VARIABLES = {
    "TORCHTPU_PLATFORM": "PJRT platform: tpu, cpu or cuda. Default: tpu where a TPU is found, else cpu",
    "TORCHTPU_FALLBACK": "CPU fallback of operators: allow, warn (once an operator; default) or error",
    "TORCHTPU_EAGER_MODE": "eager mode: strict (default) or debug",
    "TORCHTPU_DEBUG_NANS": "1: debug eager also checks every result for NaN. Default: 0",
    "XRT_TPU_CONFIG": 'which TPU this process drives: "<worker>:<task>;<ordinal>", e.g. "tpu_worker:0;0"',
}


@dataclass(frozen=True)
class XrtTpuConfig:
    """The parsed value of XRT_TPU_CONFIG.

    worker: name of the TPU worker; task: index of the worker's task (host); ordinal: index of the
    chip on that host that this process drives.
    """

    worker: str
    task: int
    ordinal: int


def parse_xrt_tpu_config(value: str) -> XrtTpuConfig:
    """Parse ``worker:task;ordinal`` (``tpu_worker:0;0``); ``worker;task;ordinal`` is read too.

    Raises ConfigError that names the variable and the expected form.
    """
    parts = [part.strip() for part in value.replace(":", ";").split(";")]
    if (
        len(parts) != 3
        or not parts[0]
        or not all(part.isascii() and part.isdigit() for part in parts[1:])
    ):
        raise ConfigError(
            f"XRT_TPU_CONFIG has the value {value!r}, which is not of the form "
            '"<worker>:<task>;<ordinal>" with two whole numbers. '
            'Set it to e.g. "tpu_worker:0;0" (first chip of the first host), or unset it.'
        )
    return XrtTpuConfig(worker=parts[0], task=int(parts[1]), ordinal=int(parts[2]))


def _choice(variable: str, default: str, choices: tuple[str, ...]) -> str:
    value = os.environ.get(variable, "").strip().lower()
    if not value:
        return default
    if value not in choices:
        raise ConfigError(
            f"{variable} has the value {value!r}. It must be one of: {', '.join(choices)}. "
            "Set it to one of these, or unset it."
        )
    return value


_observers: dict[str, list] = {}


class Config:
    """Settings of the process. Attributes may be assigned; assigned values are checked."""

    _choices = {
        "platform": ("TORCHTPU_PLATFORM", "", PLATFORMS),
        "fallback": ("TORCHTPU_FALLBACK", "warn", FALLBACK_MODES),
        "eager_mode": ("TORCHTPU_EAGER_MODE", "strict", EAGER_MODES),
        "debug_nans": ("TORCHTPU_DEBUG_NANS", "0", ("0", "1")),
    }

    def __getattr__(self, name: str):
        # Only reached while the attribute is not set yet.
        if name == "xrt_tpu_config":
            value = os.environ.get("XRT_TPU_CONFIG", "")
            parsed = parse_xrt_tpu_config(value) if value.strip() else None
            self.__dict__[name] = parsed
            return parsed
        if name not in self._choices:
            raise AttributeError(
                f"torchtpu.config has no setting {name!r}; it has: "
                + ", ".join([*self._choices, "xrt_tpu_config"])
            )
        value = _choice(*self._choices[name])
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value) -> None:
        if name not in self._choices:
            raise AttributeError(
                f"torchtpu.config has no setting {name!r} that can be assigned; it has: "
                + ", ".join(self._choices)
            )
        choices = self._choices[name][2]
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        self.__dict__[name] = value
        for function in _observers.get(name, ()):
            function(value)

    def on_change(self, name: str, function) -> None:
        """Call ``function(new value)`` whenever the setting is assigned or forgotten."""
        _observers.setdefault(name, []).append(function)

    def __delattr__(self, name: str) -> None:
        """Forget an assigned value; the environment is read again."""
        self.__dict__.pop(name, None)
        for function in _observers.get(name, ()):
            function(getattr(self, name))


config = Config()


def check(variable: str) -> None:
    """Raise ConfigError if the environment gives this variable a value that cannot be used."""
    if variable == "XRT_TPU_CONFIG":
        value = os.environ.get(variable, "")
        if value.strip():
            parse_xrt_tpu_config(value)
    for name, default, choices in Config._choices.values():
        if name == variable:
            _choice(name, default, choices)


def set_environment_default(variable: str, value: str) -> None:
    """Give an environment variable that JAX or libtpu read a value, unless the user already has."""
    os.environ.setdefault(variable, value)


def environment() -> dict[str, str]:
    """The environment variables that change how torchtpu works, as they are set now."""
    prefixes = ("TORCHTPU_", "JAX_", "XLA_", "TPU_", "PJRT_", "LIBTPU", "XRT_")
    prefixes += ("TORCH_DEVICE_BACKEND_AUTOLOAD",)
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}
