"""Factorizations and solvers (``torch.linalg``), batched over the leading dimensions.

`info` tensors are int32, 0 for success. XLA says only that a Cholesky factorization failed, so there
`info` is 1 whatever minor failed, and the factor is NaN. Eigenvalues of general matrices exist on no
XLA device and run on the CPU; so do the LDL factorization and LU without pivoting.

Legend: N, M = matrix sizes, K = right-hand sides or reflectors; batch dimensions come first.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import expm

from torchtpu.lowerings.registry import register_lowering


def _adjoint(x):
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _transpose(x):
    return jnp.swapaxes(x, -1, -2)


def _matmul(a, b):
    """Factorizations are followed by products in full precision, as LAPACK's own are."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _info(failed):
    return failed.astype(jnp.int32)


def _broadcast_batch(a, b):
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return tuple(jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))


# -- Cholesky --------------------------------------------------------------------------------------


@register_lowering("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(self, *, upper=False, check_errors=False):
    """Reads only the triangle that `upper` names."""
    if self.size == 0:
        return self, jnp.zeros(self.shape[:-2], jnp.int32)
    factor = lax.linalg.cholesky(_adjoint(self) if upper else self, symmetrize_input=False)
    failed = jnp.any(jnp.isnan(jnp.diagonal(factor, axis1=-2, axis2=-1)), -1)
    return (_adjoint(factor) if upper else factor), _info(failed)


@register_lowering("aten::cholesky", optional=True)
def cholesky(self, upper=False):
    return linalg_cholesky_ex(self, upper=upper)[0]


@register_lowering("aten::_cholesky_solve_helper")
def _cholesky_solve_helper(self, A, upper):
    """Solves ``(L Lᴴ) x = self`` (upper: ``(Uᴴ U) x = self``), the factor being `A`."""
    right, factor = self, A
    first = _solve_triangular(factor, right, lower=not upper, adjoint=upper)
    return _solve_triangular(factor, first, lower=not upper, adjoint=not upper)


@register_lowering("aten::cholesky_inverse")
def cholesky_inverse(self, upper=False):
    identity = jnp.broadcast_to(jnp.eye(self.shape[-1], dtype=self.dtype), self.shape)
    return _cholesky_solve_helper(identity, self, upper)


# -- triangular ------------------------------------------------------------------------------------


def _solve_triangular(a, b, *, lower, left=True, adjoint=False, transpose=False, unit=False):
    a, b = _broadcast_batch(a, b)
    if a.size == 0 or b.size == 0:
        return jnp.zeros(b.shape, b.dtype)
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=lower,
        transpose_a=transpose or adjoint,
        conjugate_a=adjoint,
        unit_diagonal=unit,
    )


@register_lowering("aten::linalg_solve_triangular")
def linalg_solve_triangular(self, B, *, upper, left=True, unitriangular=False):
    return _solve_triangular(self, B, lower=not upper, left=left, unit=unitriangular)


@register_lowering("aten::triangular_solve")
def triangular_solve(self, A, upper=True, transpose=False, unitriangular=False):
    right, a = self, A
    solution = _solve_triangular(a, right, lower=not upper, transpose=transpose, unit=unitriangular)
    return solution, _broadcast_batch(a, right)[0]


# -- LU --------------------------------------------------------------------------------------------


def _lu(a):
    """LU, LAPACK's 1-based pivots, the row permutation, and info: the first zero on the diagonal."""
    n = min(a.shape[-2:])
    if a.size == 0:
        pivots = jnp.zeros((*a.shape[:-2], n), jnp.int32)
        permutation = jnp.broadcast_to(
            jnp.arange(a.shape[-2], dtype=jnp.int32), (*a.shape[:-2], a.shape[-2])
        )
        return a, pivots, permutation, jnp.zeros(a.shape[:-2], jnp.int32)
    lu, pivots, permutation = lax.linalg.lu(a)
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    info = jnp.where(jnp.any(zero, -1), jnp.argmax(zero, -1) + 1, 0)
    return lu, pivots + 1, permutation, info.astype(jnp.int32)


@register_lowering("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(A, *, pivot=True, check_errors=False):
    _check_pivot(pivot)
    lu, pivots, _, info = _lu(A)
    return lu, pivots, info


def _check_pivot(pivot: bool) -> None:
    if not pivot:
        raise NotImplementedError("XLA has no LU factorization without pivoting (pivot=False)")


@register_lowering("aten::linalg_lu")
def linalg_lu(A, *, pivot=True):
    _check_pivot(pivot)
    lu, _, permutation, _ = _lu(A)
    return _unpack(lu, permutation)


@register_lowering("aten::lu_unpack")
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    permutation = _permutation(LU_pivots, LU_data.shape[-2])
    p, lower, upper = _unpack(LU_data, permutation)
    nothing = jnp.zeros(0, LU_data.dtype)
    return (
        p if unpack_pivots else nothing,
        lower if unpack_data else nothing,
        upper if unpack_data else nothing,
    )


def _permutation(pivots, rows: int):
    """Row order after the row exchanges that 1-based `pivots` describe."""
    if pivots.size == 0:
        order = jnp.arange(rows, dtype=jnp.int32)
        return jnp.broadcast_to(order, (*pivots.shape[:-1], rows))
    return lax.linalg.lu_pivots_to_permutation(pivots - 1, rows)


def _unpack(lu, permutation):
    """P, L, U of ``A = P L U``."""
    rows, columns = lu.shape[-2:]
    n = min(rows, columns)
    order = jnp.arange(rows, dtype=permutation.dtype)
    p = (order[:, None] == permutation[..., None, :]).astype(lu.dtype)
    lower = jnp.tril(lu[..., :, :n], -1) + jnp.eye(rows, n, dtype=lu.dtype)
    return p, lower, jnp.triu(lu[..., :n, :])


def _lu_solve(lu, permutation, b, *, left: bool, adjoint: bool):
    """Solves ``A x = b`` (adjoint: ``Aᴴ x = b``; not left: ``x A = b``) from the LU of A."""
    if not left:
        return _adjoint(_lu_solve(lu, permutation, _adjoint(b), left=True, adjoint=not adjoint))
    if lu.size == 0 or b.size == 0:
        return jnp.zeros(jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2]) + b.shape[-2:], b.dtype)
    lu, b = _broadcast_batch(lu, b)
    permutation = jnp.broadcast_to(permutation, b.shape[:-1])
    if not adjoint:
        b = jnp.take_along_axis(b, permutation[..., None], -2)
        b = _solve_triangular(lu, b, lower=True, unit=True)
        return _solve_triangular(lu, b, lower=False)
    b = _solve_triangular(lu, b, lower=False, adjoint=True)
    b = _solve_triangular(lu, b, lower=True, unit=True, adjoint=True)
    return jnp.take_along_axis(b, jnp.argsort(permutation, -1)[..., None], -2)


@register_lowering("aten::linalg_lu_solve")
def linalg_lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    return _lu_solve(LU, _permutation(pivots, LU.shape[-2]), B, left=left, adjoint=adjoint)


@register_lowering("aten::_linalg_solve_ex")
def _linalg_solve_ex(A, B, *, left=True, check_errors=False):
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    right = B[..., None] if vector else B
    lu, pivots, permutation, info = _lu(A)
    result = _lu_solve(lu, permutation, right, left=left, adjoint=False)
    return (result[..., 0] if vector else result), lu, pivots, info


@register_lowering("aten::linalg_inv_ex")
def linalg_inv_ex(A, *, check_errors=False):
    lu, _, permutation, info = _lu(A)
    identity = jnp.eye(A.shape[-1], dtype=A.dtype)
    return _lu_solve(lu, permutation, identity, left=True, adjoint=False), info


# -- orthogonal ------------------------------------------------------------------------------------


@register_lowering("aten::linalg_qr")
def linalg_qr(A, mode="reduced"):
    rows, columns = A.shape[-2:]
    n = min(rows, columns)
    q_columns = {"reduced": n, "complete": rows, "r": 0}[mode]
    r_rows = rows if mode == "complete" else n
    if A.size == 0:
        q = jnp.broadcast_to(
            jnp.eye(rows, q_columns, dtype=A.dtype), (*A.shape[:-2], rows, q_columns)
        )
        r = jnp.zeros((*A.shape[:-2], r_rows, columns), A.dtype)
    else:
        q, r = lax.linalg.qr(A, full_matrices=mode == "complete")
    return (jnp.zeros(0, A.dtype) if mode == "r" else q), jnp.triu(r)


@register_lowering("aten::linalg_householder_product")
def linalg_householder_product(input, tau):
    if input.size == 0:
        return input
    if tau.shape[-1] == 0:
        return jnp.broadcast_to(jnp.eye(*input.shape[-2:], dtype=input.dtype), input.shape)
    return lax.linalg.householder_product(input, tau)


@register_lowering("aten::ormqr")
def ormqr(self, input2, input3, left=True, transpose=False):
    """Multiplies input3 by the square Q of the reflectors in `self` with factors `input2`."""
    reflectors, taus, other = self, input2, input3
    if other.size == 0:
        return other
    size = other.shape[-2 if left else -1]
    missing = size - reflectors.shape[-1]
    padding = [(0, 0)] * (reflectors.ndim - 1)
    reflectors = jnp.pad(reflectors, [*padding, (0, missing)])
    taus = jnp.pad(taus, [*padding[1:], (0, size - taus.shape[-1])])
    q = linalg_householder_product(reflectors, taus)
    q = _adjoint(q) if transpose else q
    return _matmul(q, other) if left else _matmul(other, q)


def _geqrf_meta(self):
    n = min(self.shape[-2:])
    by_column = self.new_empty(self.mT.shape).mT  # as LAPACK stores it
    return by_column, self.new_empty((*self.shape[:-2], n))


@register_lowering("aten::geqrf", meta=_geqrf_meta)
def geqrf(self):
    n = min(self.shape[-2:])
    if self.size == 0:
        return self, jnp.zeros((*self.shape[:-2], n), self.dtype)
    raw, taus = jnp.linalg.qr(self, mode="raw")
    return _transpose(raw), taus


# -- spectral --------------------------------------------------------------------------------------


@register_lowering("aten::_linalg_eigh")
def _linalg_eigh(A, UPLO="L", compute_v=True):
    """Eigenvalues ascend. Only the triangle that UPLO names is read."""
    real = np.finfo(A.dtype).dtype
    nothing = jnp.zeros(0, A.dtype)
    if A.size == 0:
        return jnp.zeros(A.shape[:-1], real), (A if compute_v else nothing)
    # Made whole here: XLA's TPU algorithm reads both triangles.
    half = jnp.tril(A) if UPLO in ("L", "l") else jnp.triu(A)
    middle = jnp.real(jnp.diagonal(A, axis1=-2, axis2=-1))
    eye = jnp.eye(A.shape[-1], dtype=bool)
    whole = jnp.where(eye, middle[..., None].astype(A.dtype), half + _adjoint(half))
    vectors, values = lax.linalg.eigh(whole, symmetrize_input=False)
    return values, (vectors if compute_v else nothing)


@register_lowering("aten::_linalg_svd")
def _linalg_svd(A, full_matrices=False, compute_uv=True, *, driver=None):
    rows, columns = A.shape[-2:]
    n = min(rows, columns)
    nothing = jnp.zeros(0, A.dtype)
    if A.size == 0:
        u_columns, v_rows = (rows, columns) if full_matrices else (n, n)
        batch = A.shape[:-2]
        values = jnp.zeros((*batch, n), np.finfo(A.dtype).dtype)
        if not compute_uv:
            return nothing, values, nothing
        u = jnp.broadcast_to(jnp.eye(rows, u_columns, dtype=A.dtype), (*batch, rows, u_columns))
        v = jnp.broadcast_to(jnp.eye(v_rows, columns, dtype=A.dtype), (*batch, v_rows, columns))
        return u, values, v
    if not compute_uv:
        return nothing, lax.linalg.svd(A, compute_uv=False), nothing
    return lax.linalg.svd(A, full_matrices=full_matrices)


@register_lowering("aten::linalg_matrix_exp")
def linalg_matrix_exp(self):
    if self.size == 0:
        return self
    return expm(self, max_squarings=64)
