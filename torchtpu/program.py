"""Program: lowering calls over abstract values, and the executable it becomes.

Every way of running (strict eager, debug eager and those to come) builds Programs; nothing else is
ever compiled. A value is numbered: the inputs come first, then the results of each call.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import numpy as np
import torch
from jax import numpy as jnp
from jax.interpreters import partial_eval as pe

from torchtpu import dtypes
from torchtpu.errors import LoweringError
from torchtpu.lowerings.registry import Lowering
from torchtpu.lowerings.view import read_view, write_view
from torchtpu.runtime import client
from torchtpu.runtime.buffer import Layout
from torchtpu.runtime.executable_cache import cache

# Arguments that say where and how to place a result; the lowerings do not see them.
PLACEMENT_ARGUMENTS = frozenset(
    ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator")
)


@dataclass(frozen=True)
class Ref:
    """A reference to the value with this number."""

    index: int


@dataclass(frozen=True)
class View:
    """A view of a storage, in elements of `dtype` (torch dtype).

    conj, neg: PyTorch's lazy conjugation and negation of the values.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    conj: bool = False
    neg: bool = False

    def read(self, base, natural_stride):
        """The viewed values of a storage that holds `base`."""
        value = read_view(
            base, natural_stride, self.size, self.stride, self.offset, dtypes.to_jax(self.dtype)
        )
        return self._apply_bits(value)

    def write(self, base, natural_stride, value):
        """`base` with the viewed values replaced."""
        return write_view(
            base,
            natural_stride,
            self.size,
            self.stride,
            self.offset,
            dtypes.to_jax(self.dtype),
            self._apply_bits(value),
        )

    def _apply_bits(self, value):
        value = jnp.conj(value) if self.conj else value
        return -value if self.neg else value


@dataclass(frozen=True)
class Input:
    """One input: a storage's array and, unless it is read whole, the view of it.

    For a number that is given at run time, layout is that of a 0-d array and view is None.
    """

    layout: Layout
    view: View | None = None


@dataclass
class Call:
    """One lowering applied to bound arguments.

    arguments: schema argument name -> Ref, list of Ref / None / values, or plain value.
    compute_dtype: dtype that the promoted arguments are cast to, or None. numbers: promoted arguments
    that are numbers given at run time; they keep more digits than 16 bits hold, as in PyTorch.
    results: for each result, (shape, dtype) or None for one that is not computed.
    """

    lowering: Lowering
    arguments: dict[str, object]
    compute_dtype: torch.dtype | None
    numbers: frozenset[str]
    results: list[tuple[tuple[int, ...], torch.dtype] | None] | None


@dataclass(frozen=True)
class Output:
    """One array that the Program returns: value `ref`, written through `view` into the storage that
    input `base` holds, if base is given."""

    ref: Ref
    base: int | None = None
    view: View | None = None


@dataclass
class Program:
    """Calls with their inputs and outputs.

    random: whether the state of the random generator (uint32[4]) is an extra last input, and the
    advanced state an extra last output. matmul_precision: the setting of
    ``torch.get_float32_matmul_precision()`` under which it is traced.
    """

    inputs: list[Input]
    calls: list[Call]
    outputs: list[Output]
    random: bool = False
    matmul_precision: str = "highest"
    _compiled: object = field(default=None, repr=False)

    def trace(self, *arrays):
        """Apply all calls to arrays or tracers. Returns the list of output arrays."""
        values = self.read_inputs(arrays)
        state = arrays[-1] if self.random else None
        for call in self.calls:
            key = None
            if call.lowering.random:
                key, state = _next_key(state)
            values.extend(apply_call(call, values, key))
        outputs = []
        for output in self.outputs:
            value = values[output.ref.index]
            if output.view is not None:
                base = output.base
                value = output.view.write(arrays[base], self.inputs[base].layout.stride, value)
            outputs.append(value)
        if self.random:
            outputs.append(state)
        return outputs

    def read_inputs(self, arrays) -> list:
        """The input values in their logical shapes, from the storages' arrays."""
        values = []
        for spec, array in zip(self.inputs, arrays, strict=False):
            view = spec.view
            values.append(array if view is None else view.read(array, spec.layout.stride))
        return values

    def input_shapes(self) -> list:
        """Abstract inputs for JAX, on this process's device."""
        sharding = jax.sharding.SingleDeviceSharding(client.device())
        shapes = [
            jax.ShapeDtypeStruct(spec.layout.size, spec.layout.jax_dtype, sharding=sharding)
            for spec in self.inputs
        ]
        if self.random:
            shapes.append(jax.ShapeDtypeStruct((4,), np.uint32, sharding=sharding))
        return shapes

    def executable(self) -> Executable:
        """The compiled Program."""
        if self._compiled is None:
            self._compiled = cache.compile(self._compile)
        return self._compiled

    def _compile(self) -> Executable:
        shapes = self.input_shapes()
        with tracing_context(self.matmul_precision), jax.default_device(client.device()):
            traced = jax.jit(self.trace).trace(*shapes)
            used = _used_inputs(traced.jaxpr.jaxpr)
            if len(used) < len(shapes):
                # Values nobody reads (the old contents in `x.normal_()`) need not exist.
                traced = jax.jit(self._trace_used(used, shapes)).trace(*[shapes[i] for i in used])
            compiled = traced.lower().compile()
        return Executable(compiled, used)

    def _trace_used(self, used, shapes):
        def trace_used(*arrays):
            given = dict(zip(used, arrays, strict=True))
            return self.trace(
                *[
                    given[i] if i in given else jnp.zeros(shape.shape, shape.dtype)
                    for i, shape in enumerate(shapes)
                ]
            )

        return trace_used


class Executable:
    """A compiled Program.

    used: positions of the inputs it takes. call: function of the input arrays that returns the
    output arrays. raw_call: (execute, handlers), such that
    ``execute(arrays).consume_with_handlers(handlers)`` is the cheapest way to call it; None where
    this JAX has no such way.
    """

    def __init__(self, compiled, used: tuple[int, ...]):
        self.compiled = compiled
        self.used = used
        self.raw_call = _raw_call(compiled)
        self.call = compiled if self.raw_call is None else self._call_raw

    def _call_raw(self, *arrays):
        execute, handlers = self.raw_call
        return execute(arrays).consume_with_handlers(handlers)


def _raw_call(compiled):
    """The PJRT executable's own entry point below JAX's argument handling, which costs 15 to 20 % of
    a small call. Only for executables that need none of that handling."""
    try:
        loaded = compiled._executable
        unsafe = loaded.unsafe_call
        if (
            compiled._params.const_args
            or unsafe.ordered_effects
            or unsafe.has_unordered_effects
            or unsafe.has_host_callbacks
            or len(unsafe.kept_var_idx) != len(loaded.in_avals)
        ):
            return None
        return loaded.xla_executable.execute_sharded, unsafe.out_handler.handlers
    except AttributeError:  # an internal name moved
        return None


def _used_inputs(jaxpr) -> tuple[int, ...]:
    """Positions of the inputs that some equation or output reads."""
    jaxpr, used = pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return tuple(i for i, is_used in enumerate(used) if is_used)


MATMUL_PRECISIONS = {"highest": "highest", "high": "high", "medium": "default"}


class tracing_context:
    """JAX's settings while a Program is traced: 64-bit types kept, float32 precision as torch has
    it. The user's own JAX settings come back at exit."""

    def __init__(self, matmul_precision: str):
        self._contexts = (
            jax.enable_x64(True),
            jax.default_matmul_precision(MATMUL_PRECISIONS[matmul_precision]),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
        )

    def __enter__(self):
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *exc):
        for context in reversed(self._contexts):
            context.__exit__(*exc)


def _next_key(state):
    """A fresh PRNG key from the generator's state (uint32[4]: seed high/low, counter high/low), and
    the state with its counter advanced by one."""
    key = jax.random.wrap_key_data(state[:2], impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, state[2]), state[3])
    low = state[3] + np.uint32(1)
    high = state[2] + (low == 0).astype(np.uint32)
    return key, jnp.stack([state[0], state[1], high, low])


def _resolve(argument, values):
    if type(argument) is Ref:
        return values[argument.index]
    if type(argument) is list:
        return [_resolve(item, values) for item in argument]
    return argument


def _cast_promoted(value, dtype: np.dtype):
    if isinstance(value, list):
        return [_cast_promoted(item, dtype) for item in value]
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    return value.astype(dtype)


def apply_call(call: Call, values: list, key) -> list:
    """The results of one call, each of the promised shape and dtype."""
    lowering = call.lowering
    arguments = {name: _resolve(a, values) for name, a in call.arguments.items()}
    if call.compute_dtype is not None:
        for name in lowering.promote:
            dtype = call.compute_dtype
            dtype = dtypes.opmath(dtype) if name in call.numbers else dtypes.to_jax(dtype)
            arguments[name] = _cast_promoted(arguments[name], dtype)
    if lowering.random:
        # Attention has a tensor argument of that name.
        arguments["random_key" if "key" in arguments else "key"] = key
    results = lowering.function(**arguments)
    flat = []
    for result in results if isinstance(results, (tuple, list)) else (results,):
        flat.extend(result if isinstance(result, (tuple, list)) else (result,))
    if call.results is None:  # not known yet: the lowering says
        return flat
    if len(flat) != len(call.results):
        raise LoweringError(
            f"the lowering of {lowering.name} returned {len(flat)} results, not "
            f"{len(call.results)}; this is a bug in torchtpu"
        )
    return [
        None if spec is None else _conform(result, spec, lowering)
        for result, spec in zip(flat, call.results, strict=True)
    ]


def _conform(result, spec, lowering: Lowering):
    shape, torch_dtype = spec
    dtype = dtypes.to_jax(torch_dtype)
    result = jnp.asarray(result)
    if result.shape != shape:
        raise LoweringError(
            f"the lowering of {lowering.name} returned shape {result.shape}, PyTorch promises "
            f"{shape}; this is a bug in torchtpu"
        )
    if result.dtype != dtype:
        if np.issubdtype(result.dtype, np.complexfloating) and not np.issubdtype(
            dtype, np.complexfloating
        ):
            result = result.real
        result = result.astype(dtype)
    return result
