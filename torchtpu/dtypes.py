"""torch and JAX dtypes, and the only promotion helper.

A torch dtype has exactly one JAX dtype of the same width: nothing is ever narrowed. (JAX itself
narrows 64-bit values unless x64 is on; torchtpu traces with x64 on, see ``program.py``.)
"""

from __future__ import annotations

import functools

import numpy as np
import torch


@functools.cache
def _to_numpy() -> dict[torch.dtype, np.dtype]:
    """The table of dtypes. Made at first use: importing ml_dtypes takes longer than a plain
    ``import torch`` should."""
    import ml_dtypes

    table = {
        torch.float32: np.float32,
        torch.float64: np.float64,
        torch.float16: np.float16,
        torch.bfloat16: ml_dtypes.bfloat16,
        torch.int64: np.int64,
        torch.int32: np.int32,
        torch.int16: np.int16,
        torch.int8: np.int8,
        torch.uint8: np.uint8,
        torch.uint16: np.uint16,
        torch.uint32: np.uint32,
        torch.uint64: np.uint64,
        torch.bool: np.bool_,
        torch.complex64: np.complex64,
        torch.complex128: np.complex128,
        torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
        torch.float8_e5m2: ml_dtypes.float8_e5m2,
        torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
        torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
    }
    return {torch_dtype: np.dtype(t) for torch_dtype, t in table.items()}


@functools.cache
def _to_torch() -> dict[np.dtype, torch.dtype]:
    return {numpy_dtype: torch_dtype for torch_dtype, numpy_dtype in _to_numpy().items()}


def to_jax(dtype: torch.dtype) -> np.dtype:
    """The JAX (numpy) dtype of a torch dtype. Raises TypeError for one that XLA cannot hold."""
    try:
        return _to_numpy()[dtype]
    except KeyError:
        raise TypeError(
            f"tpu tensors cannot hold {dtype}: XLA has no such type. Supported: "
            + ", ".join(str(t).removeprefix("torch.") for t in _to_numpy())
        ) from None


def to_torch(dtype: np.dtype) -> torch.dtype:
    """The torch dtype of a JAX (numpy) dtype."""
    return _to_torch()[np.dtype(dtype)]


def opmath(dtype) -> np.dtype:
    """The JAX dtype in which PyTorch accumulates values of `dtype` (a JAX or torch dtype):
    float32 for the 16-bit and 8-bit floats, else the dtype itself."""
    numpy_dtype = to_jax(dtype) if isinstance(dtype, torch.dtype) else np.dtype(dtype)
    torch_dtype = to_torch(numpy_dtype)
    if torch_dtype.is_floating_point and numpy_dtype.itemsize <= 2:
        return np.dtype(np.float32)
    return numpy_dtype


def common_dtype(operands, int_to_float: bool = False) -> torch.dtype:
    """PyTorch's type promotion over tensors and Python numbers (torch.result_type, folded).

    Tensors count by dtype, by being 0-d and by being a wrapped number, so the real torch tensors
    must be given. int_to_float: integers become the default float dtype, as in ``torch.sqrt``.
    """
    tensors = [o for o in operands if isinstance(o, torch.Tensor)]
    numbers = [o for o in operands if not isinstance(o, torch.Tensor)]
    if len(tensors) + len(numbers) == 1:
        dtype = tensors[0].dtype if tensors else torch.result_type(torch.empty(0), numbers[0])
    elif len(operands) == 2:
        dtype = torch.result_type(operands[0], operands[1])
    else:
        dtype = _fold(tensors, numbers)
    if int_to_float and not (dtype.is_floating_point or dtype.is_complex):
        return torch.get_default_dtype()
    return dtype


def _fold(tensors, numbers) -> torch.dtype:
    """Promotion over three or more operands: dimensioned tensors, then 0-d ones, then numbers."""
    dimensioned = [t for t in tensors if t.dim() > 0]
    scalars = [t for t in tensors if t.dim() == 0]
    dtype = None
    for group in (dimensioned, scalars):
        for tensor in group:
            if dtype is None:
                dtype = tensor.dtype
            else:
                shape = (1,) if group is dimensioned or dimensioned else ()
                dtype = torch.result_type(torch.empty(shape, dtype=dtype, device="meta"), tensor)
    for number in numbers:
        shape = (1,) if dimensioned else ()
        dtype = torch.result_type(torch.empty(shape, dtype=dtype, device="meta"), number)
    return dtype


def supported() -> tuple[torch.dtype, ...]:
    """All torch dtypes that a tpu tensor can hold."""
    return tuple(_to_numpy())
