"""``_foreach_*``: one program over whole lists of tensors, derived from the pointwise lowerings.

Each entry applies the lowering of the single-tensor operator to every element of the lists; XLA
then fuses within one executable. Numbers arrive as 0-d arrays (see `dynamic`), so that a changing
learning rate or step compiles nothing.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
import torch

from torchtpu import dtypes

# Imported for what they register: the lowerings applied here.
from torchtpu.lowerings import pointwise as _pointwise  # noqa: F401
from torchtpu.lowerings import reduction as _reduction  # noqa: F401
from torchtpu.lowerings import special as _special  # noqa: F401
from torchtpu.lowerings import unary as _unary  # noqa: F401
from torchtpu.lowerings.registry import find_overload, lookup, register_lowering

register_foreach = functools.partial(register_lowering, per_element=True)

UNARY = (
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
)
BINARY = {  # foreach name: single-tensor overload
    "add": "add.Tensor",
    "sub": "sub.Tensor",
    "mul": "mul.Tensor",
    "div": "div.Tensor",
    "clamp_max": "clamp_max.Tensor",
    "clamp_min": "clamp_min.Tensor",
    "maximum": "maximum",
    "minimum": "minimum",
}


def _computation_dtype(lowering, operands):
    """The dtype PyTorch promotes `operands` (arrays; numbers as Python numbers) to."""
    stand_ins = []
    for operand in operands:
        if hasattr(operand, "dtype"):
            torch_dtype = dtypes.to_torch(operand.dtype)
            shape = (1,) * operand.ndim
            operand = torch.empty(shape, dtype=torch_dtype, device="meta")
        stand_ins.append(operand)
    return dtypes.to_jax(dtypes.common_dtype(stand_ins, lowering.int_to_float))


_NUMBER_KINDS = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}


class Number:
    """A number of a schema that arrived as a 0-d array or Python number: weighs as a number."""

    def __init__(self, value):
        self.value = value
        kind = value.dtype.kind if hasattr(value, "dtype") else None
        self.stand_in = value if kind is None else _NUMBER_KINDS[kind]


def _apply(overload_name, *operands, **options):
    """Call the lowering of `overload_name`, promoting as the engine would for a single tensor."""
    lowering = lookup(find_overload(f"aten::{overload_name}"))
    promoted = [*lowering.promote]
    names = [a.name for a in lowering.overload._schema.arguments]
    arguments = dict(zip(names, operands, strict=False))
    if promoted:
        values = [arguments[name] for name in promoted if name in arguments]
        stand_ins = [v.stand_in if isinstance(v, Number) else v for v in values]
        dtype = _computation_dtype(lowering, stand_ins)
        for name in promoted:
            value = arguments.get(name)
            if isinstance(value, Number):
                # In opmath, as PyTorch keeps numbers: the lowering rounds only its result.
                arguments[name] = jnp.asarray(value.value).astype(dtypes.opmath(dtype))
            elif hasattr(value, "dtype"):
                arguments[name] = value.astype(dtype)
    plain = {k: v.value if isinstance(v, Number) else v for k, v in arguments.items()}
    return lowering.function(**plain, **options)


def _register_unary(name):
    @register_foreach(f"aten::_foreach_{name}")
    def lowering(self):
        return [_apply(name, x) for x in self]


def _register_binary(name, overload):
    has_alpha = name in ("add", "sub")

    @register_foreach(f"aten::_foreach_{name}.List", dynamic="alpha" if has_alpha else ())
    def of_lists(self, other, alpha=1):
        options = {"alpha": alpha} if has_alpha else {}
        return [_apply(overload, x, y, **options) for x, y in zip(self, other, strict=True)]

    @register_foreach(f"aten::_foreach_{name}.Scalar", dynamic="scalar")
    def with_number(self, scalar):
        return [_apply(overload, x, Number(scalar)) for x in self]

    @register_foreach(f"aten::_foreach_{name}.ScalarList", dynamic="scalars")
    def with_numbers(self, scalars):
        return [_apply(overload, x, Number(y)) for x, y in zip(self, scalars, strict=True)]


for _name in UNARY:
    _register_unary(_name)
for _name, _overload in BINARY.items():
    _register_binary(_name, _overload)


@register_foreach("aten::_foreach_add.Tensor", dynamic="alpha")
def add_tensor(self, other, *, alpha=1):
    return [_apply("add.Tensor", x, other, alpha=alpha) for x in self]


@register_foreach("aten::_foreach_mul.Tensor")
def mul_tensor(self, other):
    return [_apply("mul.Tensor", x, other) for x in self]


@register_foreach("aten::_foreach_div.Tensor")
def div_tensor(self, other):
    return [_apply("div.Tensor", x, other) for x in self]


# Three lists -------------------------------------------------------------------------------------


def _register_addc(name):
    # The overload with a tensor of scalars wants that tensor on the CPU: PyTorch's own composite
    # kernel turns it into numbers.
    def each(self, tensor1, tensor2, values):
        return [
            _apply(name, x, a, b, value=value)
            for x, a, b, value in zip(self, tensor1, tensor2, values, strict=True)
        ]

    @register_foreach(f"aten::_foreach_{name}.Scalar", dynamic="value")
    def with_number(self, tensor1, tensor2, value=1):
        return each(self, tensor1, tensor2, [value] * len(self))

    @register_foreach(f"aten::_foreach_{name}.ScalarList", dynamic="scalars")
    def with_numbers(self, tensor1, tensor2, scalars):
        return each(self, tensor1, tensor2, scalars)


_register_addc("addcmul")
_register_addc("addcdiv")


@register_foreach("aten::_foreach_lerp.Scalar", dynamic="weight")
def lerp_number(self, tensors1, weight):
    return [_apply("lerp.Scalar", x, y, weight) for x, y in zip(self, tensors1, strict=True)]


@register_foreach("aten::_foreach_lerp.ScalarList", dynamic="weight")
def lerp_numbers(self, tensors1, weight):
    lists = zip(self, tensors1, weight, strict=True)
    return [_apply("lerp.Scalar", x, y, w) for x, y, w in lists]


@register_foreach("aten::_foreach_lerp.List")
def lerp_lists(self, tensors1, weights):
    lists = zip(self, tensors1, weights, strict=True)
    return [_apply("lerp.Tensor", x, y, w) for x, y, w in lists]


# Powers: exponents that are numbers belong to the program, as in pow.Tensor_Scalar ---------------


@register_foreach("aten::_foreach_pow.List")
def pow_lists(self, exponent):
    return [_apply("pow.Tensor_Tensor", x, y) for x, y in zip(self, exponent, strict=True)]


@register_foreach("aten::_foreach_pow.Scalar")
def pow_number(self, exponent):
    return [_apply("pow.Tensor_Scalar", x, exponent) for x in self]


@register_foreach("aten::_foreach_pow.ScalarList")
def pow_numbers(self, exponent):
    return [_apply("pow.Tensor_Scalar", x, y) for x, y in zip(self, exponent, strict=True)]


@register_foreach("aten::_foreach_pow.ScalarAndTensor", dynamic="self")
def pow_of_number(self, exponent):
    return [_apply("pow.Scalar", Number(self), y) for y in exponent]


# Reductions, copies ------------------------------------------------------------------------------


@register_foreach("aten::_foreach_norm.Scalar")
def norm(self, ord=2, dtype=None):
    return [_apply("linalg_vector_norm", x, ord=ord, dtype=dtype) for x in self]


@register_foreach("aten::_foreach_powsum.Scalar", optional=True)
def powsum(self, ord=2, dtype=None):
    return [_apply("linalg__powsum", x, ord=ord, dtype=dtype) for x in self]


@register_foreach("aten::_foreach_max")
def max_(self):
    return [_apply("max", x) for x in self]


@register_foreach("aten::_foreach_zero")
def zero(self):
    return [jnp.zeros_like(x) for x in self]


@register_foreach("aten::_foreach_copy")
def copy(self, src, non_blocking=False):
    return [jnp.broadcast_to(y.astype(x.dtype), x.shape) for x, y in zip(self, src, strict=True)]


@register_foreach("aten::_foreach_clone", optional=True)
def clone(self):
    return list(self)
