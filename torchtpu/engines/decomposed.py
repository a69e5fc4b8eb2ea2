"""Operators that run as PyTorch's own decomposition, traced into one Program.

The decomposition runs once, on tpu tensors whose storages hold JAX tracers; every operator it calls
is applied to the tracers by the ordinary kernels.
"""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from torchtpu import dtypes
from torchtpu.engines import eager, forms
from torchtpu.lowerings import registry
from torchtpu.lowerings.decompositions import decomposition
from torchtpu.runtime.buffer import contiguous_stride, layout
from torchtpu.tensor import new_tensor


def kernel_for(overload, read, unsupported):
    """A Kernel for an overload that has no lowering, or None if PyTorch cannot decompose it.

    read: function tpu tensor -> JAX array in its logical shape. unsupported: see eager.Kernel.
    """
    written = forms.written_arguments(overload._schema)
    functional = overload if not written else forms.functional_of(overload)
    if functional is None:
        return None
    lowering = registry.lookup(functional)
    if lowering is None:
        function = decomposition(functional)
        if function is None:
            return None
        lowering = registry.Lowering(
            overload=functional,
            function=_traced(functional, function, read),
            matmul_precision=True,
            name=functional.name(),
        )
    return eager.Kernel(forms.make_form(overload, lowering, written), unsupported)


def _traced(overload, function, read):
    """The decomposition as a lowering: a function of JAX arrays."""
    takes_device = any(a.name == "device" for a in overload._schema.arguments)
    kwarg_only = {a.name for a in overload._schema.arguments if a.kwarg_only}

    def to_tensor(value):
        if not hasattr(value, "aval") and not hasattr(value, "sharding"):
            return value
        size = tuple(value.shape)
        torch_dtype = dtypes.to_torch(value.dtype)
        return new_tensor(value, layout(size, contiguous_stride(size), torch_dtype))

    def lowering(**arguments):
        arguments = pytree.tree_map(to_tensor, arguments)
        if takes_device:
            arguments["device"] = torch.device("tpu")
        positional = [v for name, v in arguments.items() if name not in kwarg_only]
        keywords = {name: v for name, v in arguments.items() if name in kwarg_only}
        with eager.tracing(), torch._C._AutoDispatchBelowAutograd():
            results = function(*positional, **keywords)
            return pytree.tree_map(
                lambda r: read(r) if isinstance(r, torch.Tensor) else r,
                list(results) if isinstance(results, (tuple, list)) else results,
            )

    return lowering
