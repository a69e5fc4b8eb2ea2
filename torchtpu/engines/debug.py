"""Debug eager: every operator runs synchronously, with checks, and every error names the caller's
line."""

from __future__ import annotations

import contextlib
import os
import traceback

import numpy as np
import torch

from torchtpu.config import config
from torchtpu.errors import NanError
from torchtpu.runtime import client

# Index arguments that must lie inside a dimension: operator base name -> (argument, checked tensor).
_INDEX_CHECKS = {
    "embedding": ("indices", "weight"),
    "index_select": ("index", "self"),
    "gather": ("index", "self"),
    "scatter": ("index", "self"),
    "scatter_add": ("index", "self"),
    "scatter_reduce": ("index", "self"),
    "index_reduce": ("index", "self"),
    "put": ("index", "self"),
    "_embedding_bag": ("indices", "weight"),
    "_embedding_bag_forward_only": ("indices", "weight"),
    "take": ("index", "self"),
    "index_add": ("index", "self"),
    "index_copy": ("index", "self"),
    "index_fill": ("index", "self"),
    "index": ("indices", "self"),
    "index_put": ("indices", "self"),
    "nll_loss_forward": ("target", "self"),
    "nll_loss2d_forward": ("target", "self"),
}


_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def enabled() -> bool:
    """Whether debug eager is on."""
    return config.eager_mode == "debug"


def check_arguments(name: str, arguments: dict) -> None:
    """Raise IndexError if an index argument reaches outside its dimension."""
    base = name.split("::")[-1].split(".")[0].removesuffix("_").removeprefix("_unsafe_")
    check = _INDEX_CHECKS.get(base)
    if check is None:
        return
    index_name, tensor_name = check
    index, tensor = arguments.get(index_name), arguments.get(tensor_name)
    if tensor is None or index is None:
        return
    if isinstance(index, (list, tuple)):
        for dim, part in enumerate(index):
            if part is not None:
                _check_range(name, part, tensor.shape[dim], negative=True)
        return
    if base in ("take", "put"):
        size = tensor.numel()
    elif base in ("nll_loss_forward", "nll_loss2d_forward"):
        ignored = arguments.get("ignore_index", -100)
        values = index.cpu()
        classes = tensor.shape[1 if tensor.dim() > 1 else 0]
        _check_range(name, values[values != ignored], classes, negative=False)
        return
    elif "embedding" in base:
        size = tensor.shape[0]
    else:
        size = tensor.shape[arguments["dim"]] if tensor.dim() else 1
    _check_range(name, index, size, negative=base in ("take", "put"))


def _check_range(name, index, size, negative) -> None:
    values = index.cpu()
    if values.numel() == 0 or values.dtype.is_floating_point or str(values.dtype) == "torch.bool":
        return
    low, high = int(values.min()), int(values.max())
    if low < (-size if negative else 0) or high >= size:
        bad = high if high >= size else low
        raise IndexError(f"{name}: index {bad} is out of bounds for dimension with size {size}")


def check_outputs(name: str, arrays) -> None:
    """Wait for the results; with debug_nans, raise NanError if one holds a NaN."""
    client.block_until_ready(arrays)
    if config.debug_nans == "1":
        for array in arrays:
            host = np.asarray(array)
            if host.dtype.kind in "fc" and np.isnan(host).any():
                raise NanError(f"{name} produced a NaN")


def caller_line() -> str | None:
    """The innermost line of the stack that is neither torchtpu's, nor PyTorch's, nor the standard
    library's."""
    library = os.path.dirname(os.path.abspath(contextlib.__file__))
    for frame in reversed(traceback.extract_stack()):
        path = frame.filename
        if path.startswith(("<", _OWN_FOLDER, _TORCH_FOLDER)) or os.path.dirname(path) == library:
            continue
        return f"{path}:{frame.lineno}, in {frame.name}: {frame.line or ''}".rstrip(": ")
    return None


@contextlib.contextmanager
def caller_line_in_errors():
    """Add the caller's line to the message of any exception that passes through."""
    try:
        yield
    except Exception as error:
        line = caller_line()
        if line is not None and not any("called at" in str(arg) for arg in error.args):
            message = str(error.args[0]) if error.args else str(error)
            error.args = (f"{message}\n  called at {line}", *error.args[1:])
        raise
