"""Matrix and vector products: ``mm``, ``bmm``, ``addmm`` and their relatives.

16-bit floats are multiplied as they are, accumulated in float32, and rounded once by the caller.

Legend: B batch, N rows, K contracted, M columns.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from torchtpu import dtypes
from torchtpu.lowerings.common import like, upcast
from torchtpu.lowerings.registry import register_lowering


def contract(equation: str, a, b):
    """``einsum`` of two arrays of one dtype, accumulated in that dtype's opmath dtype."""
    dtype = jnp.result_type(a, b)
    return jnp.einsum(equation, a, b, preferred_element_type=dtypes.opmath(dtype))


def _is_default(number) -> bool:
    """Whether beta or alpha is the Python number 1 (any other value comes as a 0-d array)."""
    return isinstance(number, int | float) and number == 1


def _scale_and_add(input_, product, beta, alpha):
    """``beta * input + alpha * product`` in the dtype of `product`.

    With beta = 0, NaN and infinities of `input_` do not count, as in BLAS.
    """
    if not _is_default(alpha):
        product = product * like(alpha, product)
    input_ = input_.astype(product.dtype)
    if not _is_default(beta):
        beta = like(beta, product)
        input_ = jnp.where(beta == 0, jnp.zeros_like(input_), input_ * beta)
    return product + input_


@register_lowering("aten::mm", matmul_precision=True)
def mm(self, mat2):
    return contract("nk,km->nm", self, mat2)


@register_lowering("aten::bmm", matmul_precision=True)
def bmm(self, mat2):
    return contract("bnk,bkm->bnm", self, mat2)


@register_lowering("aten::mv", matmul_precision=True)
def mv(self, vec):
    return contract("nk,k->n", self, vec)


@register_lowering("aten::dot", matmul_precision=True)
def dot(self, tensor):
    return contract("k,k->", self, tensor)


@register_lowering("aten::vdot", matmul_precision=True)
def vdot(self, other):
    return contract("k,k->", jnp.conj(self), other)


@register_lowering("aten::addmm", dynamic=("beta", "alpha"), matmul_precision=True)
def addmm(self, mat1, mat2, beta=1, alpha=1):
    return _scale_and_add(self, mm(mat1, mat2), beta, alpha)


@register_lowering("aten::_addmm_activation", dynamic=("beta", "alpha"), matmul_precision=True)
def addmm_activation(self, mat1, mat2, beta=1, alpha=1, use_gelu=False):
    """``addmm`` followed by ReLU, or by the exact GELU (as on CPU)."""
    result = addmm(self, mat1, mat2, beta, alpha)
    return jax.nn.gelu(result, approximate=False) if use_gelu else jnp.maximum(result, 0)


@register_lowering("aten::addmv", dynamic=("beta", "alpha"), matmul_precision=True)
def addmv(self, mat, vec, beta=1, alpha=1):
    return _scale_and_add(self, mv(mat, vec), beta, alpha)


@register_lowering("aten::baddbmm", dynamic=("beta", "alpha"), matmul_precision=True)
def baddbmm(self, batch1, batch2, beta=1, alpha=1):
    return _scale_and_add(self, bmm(batch1, batch2), beta, alpha)


@register_lowering("aten::addbmm", dynamic=("beta", "alpha"), matmul_precision=True)
def addbmm(self, batch1, batch2, beta=1, alpha=1):
    return _scale_and_add(self, contract("bnk,bkm->nm", batch1, batch2), beta, alpha)


@register_lowering("aten::addr", promote=("self", "vec1", "vec2"), dynamic=("beta", "alpha"))
def addr(self, vec1, vec2, beta=1, alpha=1):
    if self.dtype == jnp.bool_:
        outer = vec1[:, None] & vec2[None, :] & jnp.asarray(alpha).astype(jnp.bool_)
        return outer | (self & jnp.asarray(beta).astype(jnp.bool_))
    product = upcast(vec1)[:, None] * upcast(vec2)[None, :]
    return _scale_and_add(self, product, beta, alpha)


# The result dtype is an argument: 16-bit operands, a float32 result.
@register_lowering("aten::mm.dtype", matmul_precision=True, optional=True)
def mm_dtype(self, mat2, out_dtype):
    return mm(self, mat2)


@register_lowering("aten::bmm.dtype", matmul_precision=True, optional=True)
def bmm_dtype(self, mat2, out_dtype):
    return bmm(self, mat2)


@register_lowering(
    "aten::addmm.dtype", dynamic=("beta", "alpha"), matmul_precision=True, optional=True
)
def addmm_dtype(self, mat1, mat2, out_dtype, beta=1, alpha=1):
    return addmm(self, mat1, mat2, beta, alpha)


@register_lowering(
    "aten::baddbmm.dtype", dynamic=("beta", "alpha"), matmul_precision=True, optional=True
)
def baddbmm_dtype(self, batch1, batch2, out_dtype, beta=1, alpha=1):
    return baddbmm(self, batch1, batch2, beta, alpha)


@register_lowering("aten::_int_mm", optional=True)
def int_mm(self, mat2):
    """int8 x int8 -> int32."""
    return lax.dot(self, mat2, preferred_element_type=jnp.int32)


@register_lowering("aten::_trilinear", matmul_precision=True)
def trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim=1):
    """``sum(i1 * i2 * i3, sumdim)`` after inserting the `expand` dimensions (nn.Bilinear)."""
    operands = [
        jnp.expand_dims(operand, tuple(expand))
        for operand, expand in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    ndim = operands[0].ndim
    shape = jnp.broadcast_shapes(*(operand.shape for operand in operands))
    letters = [chr(ord("a") + d) for d in range(ndim)]
    kept = [letters[d] for d in range(ndim) if d not in {s % ndim for s in sumdim}]

    # einsum chooses the order of contraction; size-1 axes that broadcast are left out of it.
    def axes(operand):
        return [d for d in range(ndim) if operand.shape[d] == shape[d]]

    terms = [
        (operand.reshape([operand.shape[d] for d in axes(operand)]), axes(operand))
        for operand in operands
    ]
    equation = ",".join("".join(letters[d] for d in ds) for _, ds in terms) + "->" + "".join(kept)
    return jnp.einsum(
        equation,
        *(term for term, _ in terms),
        preferred_element_type=dtypes.opmath(operands[0].dtype),
    )
