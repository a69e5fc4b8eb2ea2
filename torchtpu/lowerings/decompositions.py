"""ATen operators without a lowering of their own that go to PyTorch's own decompositions.

PyTorch keeps a table of them; the whole table is used but for the operators named here.
"""

import torch

# Decompositions that are not exact, or that need a value on the host.
_NOT_USED = frozenset(
    (
        "aten::_local_scalar_dense",
        "aten::item",
        "aten::bernoulli_",
        "aten::normal_",
        "aten::uniform_",
    )
)


def decomposition(overload: torch._ops.OpOverload):
    """PyTorch's decomposition of this overload (a function of tensors), or None."""
    import torch._decomp
    import torch._refs

    if overload._schema.name in _NOT_USED or torch.Tag.nondeterministic_seeded in overload.tags:
        return None
    return torch._decomp.decomposition_table.get(overload)
