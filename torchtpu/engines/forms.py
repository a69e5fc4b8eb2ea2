"""The forms of an operator: how in-place, ``out=`` and mutating overloads follow from a lowering of
the functional overload, read off the schemas."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchtpu.lowerings.registry import Lowering
from torchtpu.program import PLACEMENT_ARGUMENTS

_NOT_COMPARED = PLACEMENT_ARGUMENTS | {"dtype"}


@dataclass(frozen=True)
class KernelForm:
    """One overload that a lowering serves.

    overload: the overload itself. functional_arguments: the lowering's argument names. written:
    arguments that get the lowering's last results, in order. returns_written: for each result of
    the schema, the name of the written argument that is returned, or None for a new tensor.
    returns_list: the schema returns one list of tensors.
    """

    overload: torch._ops.OpOverload
    lowering: Lowering
    functional_arguments: tuple[str, ...]
    written: tuple[str, ...]
    returns_written: tuple[str | None, ...]
    returns_list: bool

    def assemble(self, results: list, args, kwargs):
        """The value to return, from the new tensors and the caller's own arguments."""
        if not self.written:
            if self.returns_list:
                return results
            return results[0] if len(results) == 1 else tuple(results)
        fresh = iter(results)
        returned = [
            next(fresh) if name is None else self._argument(name, args, kwargs)
            for name in self.returns_written
        ]
        if not returned:
            return None
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _argument(self, name, args, kwargs):
        if name in kwargs:
            return kwargs[name]
        return args[[a.name for a in self.overload._schema.arguments].index(name)]


def _signature(schema) -> list[tuple[str, str]]:
    """Argument names and types, without out= arguments and placement."""
    signature = []
    for argument in schema.arguments:
        if argument.kwarg_only and argument.alias_info is not None:
            continue  # out=
        if argument.name in _NOT_COMPARED:
            continue
        signature.append((argument.name, str(argument.type)))
    return signature


def written_arguments(schema) -> tuple[str, ...]:
    """Names of the arguments that an overload writes to, in order."""
    return tuple(
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    )


def make_form(overload, lowering: Lowering, written: tuple[str, ...]) -> KernelForm:
    """The form in which `lowering` serves `overload`, which writes to the arguments `written`."""
    schema = overload._schema
    # Results that alias an argument return that argument; alias sets are matched by name.
    by_alias = {}
    for argument in schema.arguments:
        if argument.alias_info is not None:
            for alias in argument.alias_info.before_set:
                by_alias[alias] = argument.name
    returns = []
    for result in schema.returns:
        aliases = result.alias_info.before_set if result.alias_info is not None else ()
        returns.append(next((by_alias[a] for a in aliases if a in by_alias), None))
    returns_list = len(schema.returns) == 1 and str(schema.returns[0].type) == "List[Tensor]"
    arguments = tuple(a.name for a in lowering.overload._schema.arguments)
    return KernelForm(overload, lowering, arguments, written, tuple(returns), returns_list)


def functional_form(lowering: Lowering) -> KernelForm:
    """The form of the registered overload itself."""
    return make_form(lowering.overload, lowering, lowering.mutates)


def derived_forms(lowering: Lowering) -> list[KernelForm]:
    """All in-place, out= and mutating overloads that this functional lowering serves."""
    if lowering.mutates:
        return []
    functional = lowering.overload
    namespace, base = functional._schema.name.split("::")
    ops = getattr(torch.ops, namespace)
    bases = [base, base + "_", base.removesuffix("_functional")]
    bases.append(bases[-1] + "_")
    forms = []
    wanted = _signature(functional._schema)
    for candidate in dict.fromkeys(bases):
        packet = getattr(ops, candidate, None)
        if packet is None:
            continue
        for overload_name in packet.overloads():
            overload = getattr(packet, overload_name)
            written = written_arguments(overload._schema)
            if overload is functional or not written:
                continue
            if _signature(overload._schema) == wanted:
                forms.append(make_form(overload, lowering, written))
    return forms


def functional_of(overload) -> torch._ops.OpOverload | None:
    """The functional overload from which an in-place or out= overload follows, or None."""
    namespace, base = overload._schema.name.split("::")
    ops = getattr(torch.ops, namespace)
    wanted = _signature(overload._schema)
    for candidate in (base, base.removesuffix("_"), base + "_functional"):
        packet = getattr(ops, candidate, None)
        for overload_name in packet.overloads() if packet is not None else ():
            other = getattr(packet, overload_name)
            if not written_arguments(other._schema) and _signature(other._schema) == wanted:
                return other
    return None
