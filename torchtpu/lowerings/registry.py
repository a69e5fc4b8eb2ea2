"""THE lowering registry: how each ATen operator becomes JAX.

A lowering is a pure function on JAX arrays, registered for the *functional* overload of an ATen
operator. In-place and ``out=`` forms are derived from the schema (``engines/forms.py``).

What the function receives: its parameters carry the schema's argument names. Tensors arrive as JAX
arrays in their logical shape, optional tensors as array or None, tensor lists as lists of arrays,
everything else as the Python value of the schema (ints, floats, bools, lists, ``torch.dtype``).
``layout``, ``device``, ``pin_memory``, ``memory_format``, ``non_blocking`` and ``generator`` are
dropped before the call. What it returns: one array, or a tuple of arrays, one for each result.
The caller knows the shapes and dtypes of the results from PyTorch's own meta kernels: it casts each
result to the right dtype and raises LoweringError for a wrong shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from torchtpu.errors import LoweringError


@dataclass(frozen=True)
class Lowering:
    """One registered lowering.

    overload: the functional ATen overload. function: the lowering itself.
    promote: names of the arguments that are promoted to a common dtype before the call, as PyTorch
        does it (0-d tensors and numbers weigh less). int_to_float: integers then become the default
        float dtype (``sqrt``, ``div``).
    dynamic: names of ``Scalar`` arguments (or lists of them) that arrive as 0-d arrays at run time,
        so that another value does not compile again. A value equal to the schema's default stays a
        Python number. If the argument is also in `promote`, it comes in the common dtype; else as
        float64 / int64 / bool / complex128, to be cast by the lowering.
    random: the function gets a keyword ``key`` (``random_key`` where the schema has an argument
        ``key``), a fresh JAX PRNG key each call.
    matmul_precision: the function traces dot products or convolutions, whose float32 precision
        follows ``torch.get_float32_matmul_precision()`` (set around the trace; leave
        ``precision=None`` in the JAX call).
    factory: the operator makes a tensor from nothing; the function gets the result's ``dtype``
        (torch.dtype) always.
    meta: where shapes and dtypes of the results come from. "torch": PyTorch's meta kernel (default).
        "jax": the lowering itself (contiguous results). Or a function of the schema's arguments (on
        meta tensors) that returns meta tensors.
    mutates: names of tensor (or tensor list) arguments that the operator updates. The function then
        returns their new values after its own results, in this order; a tensor list counts as one
        list.
    per_element: the operator treats the elements of its lists one by one. Strict eager then runs one
        small Program for each element: equal shapes share one executable, and no second copy of the
        whole list is ever alive. The function must accept lists of any equal length.
    idempotent: writing the same place several times leaves the same value, so that PyTorch lets the
        in-place form write to expanded tensors.
    """

    overload: torch._ops.OpOverload
    function: Callable
    promote: tuple[str, ...] = ()
    int_to_float: bool = False
    dynamic: frozenset[str] = frozenset()
    random: bool = False
    matmul_precision: bool = False
    factory: bool = False
    meta: str | Callable = "torch"
    mutates: tuple[str, ...] = ()
    per_element: bool = False
    idempotent: bool = False
    name: str = field(default="")


_lowerings: dict[torch._ops.OpOverload, Lowering] = {}
_frozen = False


def find_overload(schema_name: str) -> torch._ops.OpOverload:
    """``aten::add.Tensor`` -> ``torch.ops.aten.add.Tensor``; raises LoweringError if unknown."""
    namespace, _, rest = schema_name.partition("::")
    base, _, overload_name = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    overload = getattr(packet, overload_name or "default", None)
    if overload is None:
        known = [f"{namespace}::{base}.{o}" for o in packet.overloads()] if packet else []
        raise LoweringError(
            f"{schema_name} is not an operator of this PyTorch. "
            + (f"Overloads of {base}: {', '.join(known)}" if known else f"No operator {base!r}.")
        )
    return overload


def register_lowering(
    *schema_names: str,
    promote: tuple[str, ...] | str = (),
    int_to_float: bool = False,
    dynamic: tuple[str, ...] | str = (),
    random: bool = False,
    matmul_precision: bool = False,
    factory: bool = False,
    meta: str | Callable = "torch",
    mutates: tuple[str, ...] | str = (),
    per_element: bool = False,
    idempotent: bool = False,
    optional: bool = False,
) -> Callable:
    """Decorator: registers the function as the lowering of each named functional overload.

    optional: skip a name that this PyTorch release does not have, rather than raise.
    Raises LoweringError for an unknown name, a name registered twice, an option that names no
    argument of the schema, and after :func:`freeze`.
    """
    promote, dynamic, mutates = (
        (names,) if isinstance(names, str) else tuple(names)
        for names in (promote, dynamic, mutates)
    )

    def decorate(function: Callable) -> Callable:
        for schema_name in schema_names:
            if _frozen:
                raise LoweringError(f"{schema_name}: the lowering registry is frozen")
            try:
                overload = find_overload(schema_name)
            except LoweringError:
                if optional:
                    continue
                raise
            if overload in _lowerings:
                raise LoweringError(f"{schema_name} already has a lowering")
            arguments = {argument.name for argument in overload._schema.arguments}
            for name in (*promote, *dynamic, *mutates):
                if name not in arguments:
                    raise LoweringError(
                        f"{schema_name} has no argument {name!r}; it has {sorted(arguments)}"
                    )
            _lowerings[overload] = Lowering(
                overload=overload,
                function=function,
                promote=promote,
                int_to_float=int_to_float,
                dynamic=frozenset(dynamic),
                random=random,
                matmul_precision=matmul_precision,
                factory=factory,
                meta=meta,
                mutates=mutates,
                per_element=per_element,
                idempotent=idempotent,
                name=schema_name,
            )
        return function

    return decorate


def lookup(overload: torch._ops.OpOverload) -> Lowering | None:
    """The lowering of this overload, or None."""
    return _lowerings.get(overload)


def lowerings() -> dict[torch._ops.OpOverload, Lowering]:
    """All registered lowerings, by overload."""
    return dict(_lowerings)


def freeze() -> None:
    """Refuse further registrations: the dispatch table has been built from what is here."""
    global _frozen
    _frozen = True
