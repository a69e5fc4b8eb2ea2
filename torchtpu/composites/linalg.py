"""Linear algebra operators written in other ATen operators, on torch tensors.

What `det` and `slogdet` save for their backward depends on whether the matrix is contiguous, which no
lowering can see: PyTorch's derivatives expect the LU of the transpose of a contiguous real matrix,
and of the matrix itself otherwise. `lstsq` has results whose shapes depend on the driver and on the
rank. So these are composites, to be bound to the device's key as they are: :data:`COMPOSITES`.
"""

from __future__ import annotations

import torch

_aten = torch.ops.aten


def _uses_transpose(A) -> bool:
    return A.is_contiguous() and not A.is_complex()


def _lu(A):
    lu, pivots, info = torch.linalg.lu_factor_ex(A.mT if _uses_transpose(A) else A)
    return lu, pivots, info


def _diagonal_and_parity(lu, pivots):
    """The diagonal of U, and the sign of the row exchanges."""
    in_place = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    exchanges = (pivots != in_place).sum(-1)
    return lu.diagonal(dim1=-2, dim2=-1), 1 - 2 * (exchanges % 2)


def det(A):
    """``aten::_linalg_det``: result, LU, pivots."""
    lu, pivots, _ = _lu(A)
    diagonal, parity = _diagonal_and_parity(lu, pivots)
    return diagonal.prod(-1) * parity.to(A.dtype), lu, pivots


def slogdet(A):
    """``aten::_linalg_slogdet``: sign, logabsdet, LU, pivots."""
    lu, pivots, _ = _lu(A)
    diagonal, parity = _diagonal_and_parity(lu, pivots)
    sign = diagonal.sgn().prod(-1) * parity.to(A.dtype)
    return sign, diagonal.abs().log().sum(-1), lu, pivots


def _is_vector(A, B) -> bool:
    """Whether B is a (batch of) right-hand side vectors rather than matrices."""
    return B.dim() == 1 or (A.dim() - 1 == B.dim() and B.shape == A.shape[:-1])


def lstsq(self, b, rcond=None, *, driver=None):
    """``aten::linalg_lstsq``: solution, residuals, rank, singular_values.

    Driver "gels" is a QR factorization and assumes full rank; the others (default: "gelsy") go
    through the singular values, cut at `rcond`. What LAPACK leaves empty is empty here.
    """
    rows, columns = self.shape[-2:]
    driver = driver or "gelsy"
    vector = _is_vector(self, b)
    right = b.unsqueeze(-1) if vector else b
    rank, singular_values = (
        self.new_empty(0, dtype=torch.int64),
        self.new_empty(0, dtype=self.dtype.to_real()),
    )
    if driver == "gels":
        solution = _full_rank_lstsq(self, right)
    else:
        solution, rank, values = _truncated_lstsq(self, right, rcond)
        singular_values = values if driver != "gelsy" else singular_values
    residuals = singular_values.new_empty(0)
    if rows > columns and (
        driver == "gels" or (driver != "gelsy" and bool((rank == columns).all()))
    ):
        residuals = (self @ solution - right).abs().square().sum(-2)
    return (solution.squeeze(-1) if vector else solution), residuals, rank, singular_values


def _full_rank_lstsq(A, right):
    if A.shape[-2] >= A.shape[-1]:
        q, r = torch.linalg.qr(A)
        return torch.linalg.solve_triangular(r, q.mH @ right, upper=True)
    q, r = torch.linalg.qr(A.mH)
    return q @ torch.linalg.solve_triangular(r.mH, right, upper=False)


def _truncated_lstsq(A, right, rcond):
    u, values, vh = torch.linalg.svd(A, full_matrices=False)
    if rcond is None:
        rcond = torch.finfo(A.dtype).eps * max(A.shape[-2:])
    kept = values > rcond * values[..., :1]
    inverse = torch.where(kept, values.reciprocal(), 0).to(A.dtype)
    return vh.mH @ (inverse.unsqueeze(-1) * (u.mH @ right)), kept.sum(-1), values


COMPOSITES = {
    (_aten._linalg_det.default, "PrivateUse1"): det,
    (_aten._linalg_slogdet.default, "PrivateUse1"): slogdet,
    (_aten.linalg_lstsq.default, "PrivateUse1"): lstsq,
}
