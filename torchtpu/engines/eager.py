"""Strict eager: every operator call is a Program of one call, run at once and asynchronously.

A kernel first builds the *key* of a call: the operator, how each tensor lies in its storage, and
every value that is compiled in. A known key leads straight to its executable. An unknown one is
analysed: arguments are bound to the schema, PyTorch's own meta kernel gives shapes, dtypes and
strides of the results (and PyTorch's own errors), and the Program is built.
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor

from torchtpu import dtypes, random
from torchtpu.engines import debug
from torchtpu.engines.forms import KernelForm
from torchtpu.engines.infer import infer, meta_like
from torchtpu.errors import FallbackError
from torchtpu.program import PLACEMENT_ARGUMENTS, Call, Executable, Input, Output, Program, Ref
from torchtpu.runtime import client
from torchtpu.runtime.buffer import Buffer, Layout, contiguous_stride, is_dense, layout
from torchtpu.runtime.executable_cache import cache
from torchtpu.tensor import (
    buffer_of,
    check_placement,
    input_spec,
    is_tpu_tensor,
    is_whole,
    new_tensor,
)

_entries = cache.entries
tracing_threads: set[int] = set()


class Entry:
    """What a key leads to.

    program: the Program. results: the Layout of each new result, None for one that is absent, a
    number for one that is no tensor.
    writes: (leaf, Layout) of each storage that gets a new array. The Program's outputs are those of
    `results` that are present, then those of `writes`. resizes: leaves of `writes` that are out=
    tensors of another shape, and take the Layout's size first.
    call, used: the executable and the leaves it takes, once compiled.
    raw_call: (execute, handlers) of an executable that takes every leaf and has one new result and
    nothing else, for ``fast.py``; else None.
    """

    __slots__ = ("call", "program", "raw_call", "resizes", "results", "used", "writes")

    def __init__(self, program: Program, results, writes, resizes):
        self.program = program
        self.results: list[Layout | None] = results
        self.writes: list[tuple[int, Layout]] = writes
        self.resizes: set[int] = resizes
        self.call = None
        self.used: tuple[int, ...] = ()
        self.raw_call = None

    def set_executable(self, executable: Executable) -> None:
        """Keep the compiled Program's function."""
        self.call = executable.call
        self.used = executable.used
        if (
            len(self.used) == len(self.program.inputs)
            and len(self.results) == 1
            and isinstance(self.results[0], Layout)
            and not (self.writes or self.resizes or self.program.random)
        ):
            self.raw_call = executable.raw_call


def is_tracing() -> bool:
    """Whether this thread is tracing a Program, so that storages hold JAX tracers."""
    return bool(tracing_threads) and threading.get_ident() in tracing_threads


class tracing:
    """Within this context, kernels of this thread apply lowerings to tracers instead of running."""

    def __enter__(self):
        ident = threading.get_ident()
        self._outer = ident in tracing_threads
        tracing_threads.add(ident)

    def __exit__(self, *_exc):
        if not self._outer:
            tracing_threads.discard(threading.get_ident())


def _number_key(value):
    """A hashable that tells apart 1, 1.0 and True, 0.0 and -0.0, and equals itself for nan."""
    kind = type(value)
    if kind is float or kind is complex:
        return (kind, repr(value))
    return (kind, value)


class _Leaves:
    """The leaves of a call in order: tensors, numbers and lists of them flattened."""

    __slots__ = ("arrays", "key", "tensors")

    def __init__(self):
        self.key: list = []
        self.arrays: list = []
        self.tensors: list = []


_WRAPPED_PROBES = {
    torch.float64: torch.zeros((), dtype=torch.float32),
    torch.int64: torch.zeros((), dtype=torch.int8),
    torch.complex128: torch.zeros((), dtype=torch.complex64),
}


def is_wrapped_number(tensor: Tensor) -> bool:
    """Whether this 0-d CPU tensor stands for a Python number, which promotes less than a tensor."""
    probe = _WRAPPED_PROBES.get(tensor.dtype)
    return probe is not None and torch.result_type(probe, tensor) == probe.dtype


_scalar_arrays: dict[tuple, object] = {}


def scalar_array(value, dtype: torch.dtype):
    """A 0-d device array of a Python number; recent ones are kept, since programs repeat them."""
    key = (dtype, _number_key(value))
    array = _scalar_arrays.get(key)
    if array is None:
        array = client.from_numpy(np.asarray(value, dtypes.to_jax(dtype)))
        if len(_scalar_arrays) > 4096:
            _scalar_arrays.clear()
        _scalar_arrays[key] = array
    return array


NUMBER_DTYPES = {
    float: torch.float64,
    int: torch.int64,
    bool: torch.bool,
    complex: torch.complex128,
}


class Kernel:
    """The kernel of one ATen overload on the tpu device.

    unsupported: function (overload, args, kwargs) that runs a call for which the lowering, or
    PyTorch's meta kernel, raises NotImplementedError.
    """

    def __init__(self, form: KernelForm, unsupported):
        self.form = form
        self.unsupported = unsupported
        self.name = form.overload.name()
        lowering = form.lowering
        self.random = lowering.random
        self.precision = lowering.matmul_precision
        schema = form.overload._schema
        self.argument_names = [a.name for a in schema.arguments]
        self.positional = [a.name for a in schema.arguments if not a.kwarg_only]
        self.defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        self.dynamic = lowering.dynamic
        if lowering.per_element:
            self._run_call = self._call_per_element
        elif _writes_several(schema, form.written):
            self._run_call = self._call_that_writes_several
        else:
            self._run_call = self._call

    # -- collecting ------------------------------------------------------------------------------

    def _collect(self, args, kwargs, leaves: _Leaves) -> None:
        names = self.positional
        for position, value in enumerate(args):
            self._collect_value(names[position], value, leaves)
        for name, value in kwargs.items():
            if name == "generator":
                continue
            leaves.key.append(name)
            self._collect_value(name, value, leaves)

    def _collect_value(self, name, value, leaves: _Leaves) -> None:
        key = leaves.key
        if isinstance(value, Tensor):
            self._collect_tensor(value, leaves)
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            for item in value:
                self._collect_value(name, item, leaves)
        elif isinstance(value, (bool, int, float, complex)):
            if name in self.dynamic and not self._is_default(name, value):
                key.append(type(value))
                leaves.arrays.append(scalar_array(value, NUMBER_DTYPES[type(value)]))
                leaves.tensors.append(None)
            else:
                key.append(_number_key(value))
        elif isinstance(value, torch.Generator):
            pass
        else:
            key.append(value)

    def _is_default(self, name, value) -> bool:
        default = self.defaults.get(name)
        return type(default) is type(value) and default == value

    def _collect_tensor(self, tensor, leaves: _Leaves) -> None:
        try:
            buffer = tensor.untyped_storage().tpu_buffer
        except (AttributeError, NotImplementedError, RuntimeError):
            self._collect_cpu_scalar(tensor, leaves)
            return
        if is_whole(tensor, buffer):
            leaves.key.append(buffer.layout)
        else:
            leaves.key.append(input_spec(tensor, buffer))
        leaves.arrays.append(buffer.array if buffer.array is not None else buffer)
        leaves.tensors.append(tensor)

    def _collect_cpu_scalar(self, tensor, leaves: _Leaves) -> None:
        if tensor.layout is not torch.strided:
            raise NotImplementedError(
                f"{self.name}: tpu operators take dense tensors, not {tensor.layout}"
            )
        if tensor.device.type != "cpu" or tensor.dim() != 0:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"tpu:0 and {tensor.device}! (operator {self.name}). Move every input with .to('tpu')."
            )
        leaves.key.append((tensor.dtype, is_wrapped_number(tensor)))
        leaves.arrays.append(scalar_array(tensor.item(), tensor.dtype))
        leaves.tensors.append(tensor)

    # -- calling ---------------------------------------------------------------------------------

    def __call__(self, *args, **kwargs):
        if debug.enabled():
            with debug.caller_line_in_errors():
                debug.check_arguments(self.name, self._bind(args, kwargs))
                return self._run_call(args, kwargs)
        return self._run_call(args, kwargs)

    def _call_per_element(self, args, kwargs):
        """One call for each element of the lists; see Lowering.per_element."""
        count = max(len(v) for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple)))

        def element(value, i):
            is_list = isinstance(value, (list, tuple)) and len(value) == count
            return [value[i]] if is_list else value

        results = []
        for i in range(count):
            part = self._call(
                [element(value, i) for value in args],
                {name: element(value, i) for name, value in kwargs.items()},
            )
            if isinstance(part, list):
                results.extend(part)
        return results if self.form.returns_list else None

    def _call_that_writes_several(self, args, kwargs):
        """A Program returns each storage once: tensors that share one are written on the CPU. Looked
        at in every call, because the key of a call does not tell which tensors share a storage."""
        bound = self._bind(args, kwargs)
        written = _flatten(bound[name] for name in self.form.written)
        if len({tensor.untyped_storage()._cdata for tensor in written}) < len(written):
            return self.unsupported(self.form.overload, args, kwargs)
        return self._call(args, kwargs)

    def _call(self, args, kwargs):
        leaves = _Leaves()
        leaves.key.append(self)
        self._collect(args, kwargs, leaves)
        if self.precision:
            leaves.key.append(torch.get_float32_matmul_precision())
        default_dtype = torch.get_default_dtype()
        if default_dtype is not torch.float32:  # what integers are promoted to
            leaves.key.append(default_dtype)
        key = tuple(leaves.key)
        entry = _entries.get(key)
        if entry is None:
            try:
                entry = self._prepare(key, args, kwargs)
            except FallbackError:
                raise
            except NotImplementedError:
                return self.unsupported(self.form.overload, args, kwargs)
        if entry.writes and len(leaves.tensors) > 1:
            _check_overlap([leaf for leaf, _ in entry.writes], leaves.tensors)
        generator = _generator(args, kwargs) if self.random else None
        outputs = self._run(entry, leaves, generator)
        return self._deliver(entry, outputs, leaves, args, kwargs)

    def _prepare(self, key, args, kwargs) -> Entry:
        entry = self._analyse(args, kwargs)
        if not is_tracing():
            entry.program.executable()
        _entries[key] = entry
        return entry

    def _run(self, entry: Entry, leaves: _Leaves, generator) -> list:
        arrays = leaves.arrays
        if self.random:
            arrays.append(
                random.default_generator.array
                if generator is None
                else random.state_from_generator(generator)
            )
        if is_tracing():
            arrays = [a if type(a) is not Buffer else a.materialize() for a in arrays]
            outputs = entry.program.trace(*arrays)
        else:
            executable = entry.program.executable() if entry.call is None else None
            used = entry.used if executable is None else executable.used
            call = entry.call if executable is None else executable.call
            arrays = [arrays[i] for i in used]
            outputs = call(*[a if type(a) is not Buffer else a.materialize() for a in arrays])
            if executable is not None:
                entry.set_executable(executable)
        if self.random:
            *outputs, state = outputs
            if generator is None:
                random.default_generator.array = state
        if debug.enabled() and not is_tracing():
            debug.check_outputs(self.name, outputs)
        return outputs

    def _deliver(self, entry: Entry, outputs, leaves: _Leaves, args, kwargs):
        outputs = iter(outputs)
        results = [
            new_tensor(next(outputs), result) if isinstance(result, Layout) else result
            for result in entry.results
        ]
        for leaf, write_layout in entry.writes:
            tensor = leaves.tensors[leaf]
            if leaf in entry.resizes:
                tensor.resize_(write_layout.size)
                tensor.copy_(new_tensor(next(outputs), write_layout))
                continue
            buffer = tensor.untyped_storage().tpu_buffer
            buffer.put(next(outputs), write_layout)
        return self.form.assemble(results, args, kwargs)

    # -- analysing -------------------------------------------------------------------------------

    def _bind(self, args, kwargs) -> dict:
        bound = dict(zip(self.positional, args, strict=False))
        bound.update(kwargs)
        for name in self.argument_names:
            if name not in bound:
                bound[name] = self.defaults.get(name)
        return bound

    def _analyse(self, args, kwargs) -> Entry:
        """Build the Program for such a call."""
        form, lowering = self.form, self.form.lowering
        inputs: list[Input] = []
        refs: dict[str, object] = {}
        leaf_of: dict[str, object] = {}  # argument -> leaf position(s) of its tensors
        meta: dict[str, object] = {}
        counter = [0]

        def visit(name, value):
            """(ref, leaf, meta) of one argument value, in the order of `_collect`."""
            if isinstance(value, Tensor):
                leaf = counter[0]
                counter[0] += 1
                if is_tpu_tensor(value):
                    spec = input_spec(value, buffer_of(value))
                    inputs.append(spec)
                    return Ref(leaf), leaf, meta_like(value)
                inputs.append(Input(layout((), (), value.dtype)))
                return Ref(leaf), leaf, value
            if isinstance(value, (list, tuple)):
                parts = [visit(name, item) for item in value]
                return [p[0] for p in parts], [p[1] for p in parts], [p[2] for p in parts]
            if (
                isinstance(value, (bool, int, float, complex))
                and name in self.dynamic
                and not self._is_default(name, value)
            ):
                leaf = counter[0]
                counter[0] += 1
                inputs.append(Input(layout((), (), NUMBER_DTYPES[type(value)])))
                return Ref(leaf), None, value
            return value, None, value

        given = dict(zip(self.positional, args, strict=False))
        given.update({n: v for n, v in kwargs.items() if n != "generator"})
        for name, value in given.items():
            refs[name], leaf_of[name], meta[name] = visit(name, value)
        bound = self._bind(args, kwargs)
        bound.pop("generator", None)

        compute_dtype = None
        if lowering.promote:
            operands = _flatten(bound[name] for name in lowering.promote)
            compute_dtype = dtypes.common_dtype(operands, lowering.int_to_float)
        arguments = {
            name: refs.get(name, bound.get(name))
            for name in form.functional_arguments
            if name not in PLACEMENT_ARGUMENTS
        }
        numbers = frozenset(
            name for name in lowering.promote if _is_number(bound[name]) and name in refs
        )
        call = Call(lowering, arguments, compute_dtype, numbers, None)
        program = Program(
            inputs=inputs,
            calls=[call],
            outputs=[],
            random=self.random,
            matmul_precision=torch.get_float32_matmul_precision(),
        )
        results, written = infer(form, bound, meta, call, program)
        if lowering.factory:
            check_placement(bound.get("layout"), bound.get("device"))
            arguments["dtype"] = next(m for m in [*results, *written] if m is not None).dtype
        call.results = [
            (tuple(m.shape), m.dtype) if isinstance(m, Tensor) else None
            for m in [*results, *written]
        ]
        targets = _pair_written(bound, [(name, leaf_of.get(name)) for name in form.written])
        return self._entry(program, results, written, targets)

    def _entry(self, program: Program, results, written, targets) -> Entry:
        """Decide where each result goes; completes the Program's outputs."""
        value = len(program.inputs)
        result_layouts, writes, resizes = [], [], set()
        for m in results:
            if not isinstance(m, Tensor):
                result_layouts.append(m)
            else:
                result_layouts.append(result_layout(m))
                program.outputs.append(Output(Ref(value)))
            value += 1
        for (leaf, tensor), m in zip(targets, written, strict=True):
            spec = program.inputs[leaf]
            if not self.form.lowering.idempotent and _overlaps_itself(tensor):
                raise RuntimeError(
                    "unsupported operation: more than one element of the written-to tensor refers to "
                    "a single memory location. Please clone() the tensor before performing the "
                    "operation."
                )
            if tuple(m.shape) != tuple(tensor.shape):
                resizes.add(leaf)
                writes.append((leaf, layout(m.shape, contiguous_stride(m.shape), tensor.dtype)))
                program.outputs.append(Output(Ref(value)))
            elif spec.view is None:
                writes.append((leaf, spec.layout))
                program.outputs.append(Output(Ref(value)))
            else:
                writes.append((leaf, spec.layout))
                program.outputs.append(Output(Ref(value), base=leaf, view=spec.view))
            value += 1
        return Entry(program, result_layouts, writes, resizes)


def result_layout(meta: Tensor) -> Layout:
    """The layout of a new tensor with a meta tensor's size, strides and dtype."""
    size, stride = tuple(meta.shape), meta.stride()
    if not is_dense(size, stride):
        stride = contiguous_stride(size)
    return layout(size, stride, meta.dtype)


def _writes_several(schema, written: tuple[str, ...]) -> bool:
    types = {a.name: str(a.type) for a in schema.arguments}
    return len(written) > 1 or any(types[name].startswith("List") for name in written)


def _flatten(values):
    flat = []
    for value in values:
        if isinstance(value, (list, tuple)):
            flat.extend(_flatten(value))
        elif value is not None:
            flat.append(value)
    return flat


def _pair_written(bound, written):
    """(leaf, tensor) for every tensor of the written arguments, lists flattened."""
    pairs = []
    for name, leaf in written:
        if isinstance(leaf, list):
            pairs.extend(zip(leaf, bound[name], strict=True))
        elif leaf is not None:
            pairs.append((leaf, bound[name]))
    return pairs


def _overlaps_itself(tensor: Tensor) -> bool:
    """Whether the tensor is expanded, so that one place in storage is several elements."""
    return tensor.numel() > 0 and any(
        s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _check_overlap(written: list[int], tensors: list) -> None:
    """Refuse, as PyTorch does, to write to a tensor that shares part of its memory with another
    argument: the result would depend on the order of writing."""
    for leaf in written:
        target = tensors[leaf]
        storage = target.untyped_storage()
        if not storage.tpu_buffer.viewed:
            continue
        for other in tensors:
            if (
                other is not None
                and other is not target
                and is_tpu_tensor(other)
                and other.untyped_storage() is storage
                and _overlaps_partly(target, other)
            ):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to "
                    "tensor refer to a single memory location. Please clone() the tensor before "
                    "performing the operation."
                )


def _overlaps_partly(a: Tensor, b: Tensor) -> bool:
    """Whether two views of one storage share some, but not all, of their bytes; False where only a
    look at every element could tell (as at::get_overlap_status)."""
    if a.numel() == 0 or b.numel() == 0:
        return False
    if not (is_dense(tuple(a.shape), a.stride()) and is_dense(tuple(b.shape), b.stride())):
        return False

    def span(t):
        start = t.storage_offset() * t.element_size()
        return start, start + t.numel() * t.element_size()

    (a_start, a_end), (b_start, b_end) = span(a), span(b)
    if (a_start, a_end) == (b_start, b_end):
        return a.stride() != b.stride()
    return a_start < b_end and b_start < a_end


def _generator(args, kwargs) -> torch.Generator | None:
    """The generator among a call's arguments."""
    return next((v for v in (*args, *kwargs.values()) if isinstance(v, torch.Generator)), None)


def _is_number(value) -> bool:
    """A Python number, a 0-d CPU tensor that stands for one, or a list of such."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_is_number(item) for item in value)
    if isinstance(value, Tensor):
        return value.dim() == 0 and value.device.type == "cpu"
    return isinstance(value, (bool, int, float, complex))
