"""The short way for the commonest calls: one or two whole tensors in, one new tensor out, known key.

Python spends about as long on a strict eager call as PJRT does, so every attribute counts here. What
is not common goes to the Kernel, which handles everything. Storages that hold tracers are never
common (`Buffer.whole`), and in debug eager nothing is: the tables are empty then.
"""

from __future__ import annotations

import torch

from torchtpu.config import config
from torchtpu.engines import debug
from torchtpu.engines.eager import NUMBER_DTYPES, Kernel, scalar_array
from torchtpu.runtime.buffer import Buffer, Layout
from torchtpu.runtime.executable_cache import cache
from torchtpu.tensor import new_tensor

# What reading a buffer or looking up a layout raises for a call that is not common.
_NOT_COMMON = (AttributeError, KeyError, NotImplementedError, RuntimeError)


def fast_kernel(kernel: Kernel):
    """The function to bind for `kernel`: a short way where its schema allows one, else itself."""
    arguments = kernel.form.overload._schema.arguments
    tensors = 0
    while tensors < len(arguments) and str(arguments[tensors].type) == "Tensor":
        tensors += 1
    if (
        tensors not in (1, 2)
        or kernel.random
        or kernel.precision
        or kernel.form.written
        or kernel.form.returns_list
        or len(kernel.form.returns_written) != 1
        or not all(a.has_default_value() for a in arguments[tensors:])
    ):
        return kernel.__call__
    return _one_tensor(kernel) if tensors == 1 else _two_tensors(kernel)


def _buffer(tensor) -> Buffer | None:
    """The Buffer of a tpu tensor, None for anything else."""
    try:
        return tensor.untyped_storage().tpu_buffer
    except _NOT_COMMON:
        return None


def _learn(table: dict, kernel: Kernel, buffers: list[Buffer], key: list) -> None:
    """After a call through the Kernel: enter its executable, if the call was a common one.

    key: what Kernel._collect adds to its key for each argument.
    """
    if debug.enabled() or any(buffer.whole is None for buffer in buffers):
        return
    entry = cache.entries.get((kernel, *key))
    if (
        entry is None
        or entry.raw_call is None
        or _depends_on_default_dtype(entry.results[0], buffers)
    ):
        return
    execute, handlers = entry.raw_call
    result = entry.results[0]
    if len(_shells) > _MOST_LAYOUTS:
        _shells.clear()
    shells = _shells.setdefault(result, [])
    table[tuple(key) if len(key) > 1 else key[0]] = (execute, handlers, shells, result)


def _depends_on_default_dtype(result: Layout, buffers: list[Buffer]) -> bool:
    """Whether integers became floating: the tables do not know of torch.set_default_dtype."""

    def is_inexact(dtype):
        return dtype.is_floating_point or dtype.is_complex

    return is_inexact(result.dtype) and not any(is_inexact(b.layout.dtype) for b in buffers)


# Tensors made in advance, with their Buffers, for results of a layout. Making sixteen at once costs
# half as much for each as making one in the middle of a call, whose code has left the CPU's caches.
_shells: dict[Layout, list[tuple[torch.Tensor, Buffer]]] = {}
_BATCH = 16
_MOST_LAYOUTS = 1000


def _make_shell(shells: list, result: Layout):
    """A new tensor of this layout and its Buffer, into which an array must be put; fills `shells`."""
    made = []
    for _ in range(_BATCH):
        tensor = new_tensor(None, result)
        buffer = tensor.untyped_storage().tpu_buffer
        buffer.whole = result
        made.append((tensor, buffer))
    if not torch.is_inference_mode_enabled():  # what is made there is of use only there
        shells.extend(made[1:])
    return made[0]


def _one_tensor(kernel: Kernel):
    table = cache.new_short_table()

    def run(a, *rest, **kwargs):
        if rest or kwargs:
            return kernel(a, *rest, **kwargs)
        try:
            buffer = a.untyped_storage().tpu_buffer
            execute, handlers, shells, result = table[buffer.whole]
        except _NOT_COMMON:
            return _through_kernel(a)
        array = buffer.array
        try:
            tensor, buffer = shells.pop()
        except IndexError:
            tensor, buffer = _make_shell(shells, result)
        (buffer.array,) = execute((array,)).consume_with_handlers(handlers)
        return tensor

    def _through_kernel(a):
        tensor = kernel(a)
        buffer = _buffer(a)
        if buffer is not None:
            _learn(table, kernel, [buffer], [buffer.layout])
        return tensor

    return run


def _two_tensors(kernel: Kernel):
    table = cache.new_short_table()
    b_is_dynamic = kernel.positional[1] in kernel.dynamic

    def run(a, b, *rest, **kwargs):
        if rest or kwargs:
            return kernel(a, b, *rest, **kwargs)
        try:
            buffer_a = a.untyped_storage().tpu_buffer
            buffer_b = b.untyped_storage().tpu_buffer
            execute, handlers, shells, result = table[buffer_a.whole, buffer_b.whole]
        except _NOT_COMMON:
            return _through_kernel(a, b)
        try:
            tensor, buffer = shells.pop()
        except IndexError:
            tensor, buffer = _make_shell(shells, result)
        (buffer.array,) = execute((buffer_a.array, buffer_b.array)).consume_with_handlers(handlers)
        return tensor

    def _through_kernel(a, b):
        number_dtype = NUMBER_DTYPES.get(type(b))
        if number_dtype is not None and b_is_dynamic:
            return _with_number(a, b, number_dtype)
        tensor = kernel(a, b)
        buffers = [_buffer(a), _buffer(b)]
        if None not in buffers:
            _learn(table, kernel, buffers, [buffer.layout for buffer in buffers])
        return tensor

    def _with_number(a, number, number_dtype):
        """`x * 2`: the number is a run-time argument, so that another one finds the same entry."""
        buffer = _buffer(a)
        found = None if buffer is None else table.get((buffer.whole, type(number)))
        if found is None:
            tensor = kernel(a, number)
            if buffer is not None:
                _learn(table, kernel, [buffer], [buffer.layout, type(number)])
            return tensor
        execute, handlers, _, result = found
        arrays = (buffer.array, scalar_array(number, number_dtype))
        return new_tensor(execute(arrays).consume_with_handlers(handlers)[0], result)

    return run


config.on_change("eager_mode", lambda _value: cache.clear_short_tables())
