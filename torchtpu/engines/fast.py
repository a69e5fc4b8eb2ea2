"""The short way for the commonest calls: one or two whole tensors in, one new tensor out, known key.

Python spends about as long on a strict eager call as PJRT does, so every attribute counts here. What
is not common goes to the Kernel, which handles everything.
"""

from __future__ import annotations

from torchtpu.config import config
from torchtpu.engines.eager import NUMBER_DTYPES, Kernel, scalar_array, tracing_threads
from torchtpu.runtime.buffer import Buffer
from torchtpu.runtime.executable_cache import cache
from torchtpu.tensor import _create_empty_tensor, new_tensor

_new_buffer = object.__new__

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
    if any(buffer.viewed for buffer in buffers):
        return
    entry = cache.entries.get((kernel, *key))
    if entry is not None and entry.raw_call is not None and not entry.results[0].needs_stride:
        execute, handlers = entry.raw_call
        result = entry.results[0]
        table[tuple(key) if len(key) > 1 else key[0]] = (
            execute,
            handlers,
            result,
            result.size,
            result.dtype,
        )


def _one_tensor(kernel: Kernel):
    table = cache.new_short_table()

    def run(a, *rest, **kwargs):
        if rest or kwargs or tracing_threads or config.eager_mode == "debug":
            return kernel(a, *rest, **kwargs)
        try:
            buffer = a.untyped_storage().tpu_buffer
            execute, handlers, result, size, dtype = table[buffer.layout]
        except _NOT_COMMON:
            buffer = None
        if buffer is None or buffer.viewed or buffer.array is None:
            tensor = kernel(a)
            buffer = _buffer(a)
            if buffer is not None:
                _learn(table, kernel, [buffer], [buffer.layout])
            return tensor
        (array,) = execute((buffer.array,)).consume_with_handlers(handlers)
        buffer = _new_buffer(Buffer)  # half the cost of Buffer(array, result)
        buffer.array, buffer.layout, buffer.viewed = array, result, False
        tensor = _create_empty_tensor(size, dtype)
        tensor.untyped_storage().tpu_buffer = buffer
        return tensor

    return run


def _two_tensors(kernel: Kernel):
    table = cache.new_short_table()
    b_is_dynamic = kernel.positional[1] in kernel.dynamic

    def run(a, b, *rest, **kwargs):
        if rest or kwargs or tracing_threads or config.eager_mode == "debug":
            return kernel(a, b, *rest, **kwargs)
        try:
            buffer_a = a.untyped_storage().tpu_buffer
            buffer_b = b.untyped_storage().tpu_buffer
            execute, handlers, result, size, dtype = table[buffer_a.layout, buffer_b.layout]
        except _NOT_COMMON:
            return _through_kernel(a, b)
        array_a, array_b = buffer_a.array, buffer_b.array
        if buffer_a.viewed or buffer_b.viewed or array_a is None or array_b is None:
            return kernel(a, b)
        (array,) = execute((array_a, array_b)).consume_with_handlers(handlers)
        buffer = _new_buffer(Buffer)  # half the cost of Buffer(array, result)
        buffer.array, buffer.layout, buffer.viewed = array, result, False
        tensor = _create_empty_tensor(size, dtype)
        tensor.untyped_storage().tpu_buffer = buffer
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
        found = None if buffer is None else table.get((buffer.layout, type(number)))
        if found is None or buffer.viewed or buffer.array is None:
            tensor = kernel(a, number)
            if buffer is not None:
                _learn(table, kernel, [buffer], [buffer.layout, type(number)])
            return tensor
        execute, handlers, result, _, _ = found
        arrays = (buffer.array, scalar_array(number, number_dtype))
        return new_tensor(execute(arrays).consume_with_handlers(handlers)[0], result)

    return run
