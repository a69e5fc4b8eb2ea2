"""Running one operator on the CPU because it has no lowering: counted, named, switchable."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchtpu import metrics
from torchtpu.config import config
from torchtpu.errors import FallbackError


class FallbackWarning(UserWarning):
    """An operator ran on the CPU."""


def run_on_cpu(overload, args, kwargs, to_cpu):
    """Copy tpu arguments to the CPU, run the operator there, copy results and written arguments
    back.

    to_cpu: function tpu tensor -> CPU tensor. Raises FallbackError where TORCHTPU_FALLBACK=error,
    or where the operator returns a view, which a copy cannot be.
    """
    name = overload.name()
    schema = overload._schema
    if config.fallback == "error":
        raise FallbackError(
            f"{name} has no lowering for the tpu device, and TORCHTPU_FALLBACK=error forbids running "
            "it on the CPU. Set TORCHTPU_FALLBACK=warn, or use another operator."
        )
    if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
        raise FallbackError(f"{name} returns a view, which the CPU fallback cannot make on tpu")
    if metrics.count_fallback(name) == 1 and config.fallback == "warn":
        warnings.warn(
            f"{name} has no lowering for the tpu device and runs on the CPU "
            "(said once; torchtpu.metrics counts it; TORCHTPU_FALLBACK=error forbids it)",
            FallbackWarning,
            stacklevel=3,
        )

    moved: dict[int, Tensor] = {}

    def to_host(value):
        if isinstance(value, Tensor) and value.device.type == "tpu":
            if id(value) not in moved:
                moved[id(value)] = to_cpu(value)
            return moved[id(value)]
        if isinstance(value, torch.device) and value.type == "tpu":
            return torch.device("cpu")
        return value

    cpu_args, cpu_kwargs = pytree.tree_map(to_host, (args, kwargs))
    results = overload(*cpu_args, **cpu_kwargs)

    given = dict(zip([a.name for a in schema.arguments], args, strict=False)) | kwargs
    given_cpu = dict(zip([a.name for a in schema.arguments], cpu_args, strict=False)) | cpu_kwargs
    originals: dict[int, Tensor] = {}
    for argument in schema.arguments:
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        for own, host in zip(
            pytree.tree_leaves(given.get(argument.name)),
            pytree.tree_leaves(given_cpu.get(argument.name)),
            strict=True,
        ):
            if not isinstance(own, Tensor):
                continue
            if own.shape != host.shape:
                own.resize_(host.shape)
            own.copy_(host)
            originals[id(host)] = own

    def to_device(value):
        if isinstance(value, Tensor):
            return originals[id(value)] if id(value) in originals else value.to("tpu")
        return value

    return pytree.tree_map(to_device, results)
