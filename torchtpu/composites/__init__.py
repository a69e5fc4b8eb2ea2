"""ATen operators written in other ATen operators, on torch tensors.

For what no lowering can do because it depends on more than values: on strides, on PyTorch's choice
of a backend, or on autograd. Each module has COMPOSITES: {(overload, dispatch key): function}; a new
module is found by itself.
"""

import importlib
import pkgutil


def composites() -> dict:
    """All composites: {(overload, dispatch key): function}."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        found |= importlib.import_module(f"{__name__}.{module.name}").COMPOSITES
    return found
