"""Factorizations and solvers agree with LAPACK, batched and complex, and so do their gradients."""

import pytest
import torch
from torch import linalg

TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}


def matrix(*shape, dtype=torch.float32):
    x = torch.randn(*shape, dtype=dtype)
    if shape[-1] == shape[-2]:
        x = x + 3 * torch.eye(shape[-1])
    return x.requires_grad_()


def positive(*shape, dtype=torch.float32):
    x = torch.randn(*shape, dtype=dtype)
    return (x @ x.mH + torch.eye(shape[-1])).requires_grad_()


@pytest.fixture
def close(same_as_cpu):
    return lambda *args, **kwargs: same_as_cpu(*args, tolerance=TOLERANCE, **kwargs)


@pytest.fixture
def values_close(no_fallback):
    """Values and gradients as on the CPU; strides are not compared."""

    def check(function, *args):
        outcomes = []
        for device in ("cpu", "tpu"):
            own = [a.detach().to(device).requires_grad_(a.requires_grad) for a in args]
            result = function(*own)
            gradients = torch.autograd.grad(result.abs().sum(), [a for a in own if a.requires_grad])
            outcomes.append([result.detach().cpu(), *[g.cpu() for g in gradients]])
        for expected, actual in zip(*outcomes):
            torch.testing.assert_close(actual, expected, **TOLERANCE)

    return check


SQUARE = {
    "inv": linalg.inv,
    "det": linalg.det,
    "det_of_transposed": lambda a: linalg.det(a.mT),
    "slogdet": lambda a: linalg.slogdet(a)[1],
    "matrix_exp": lambda a: linalg.matrix_exp(a * 0.1),
    "matrix_power": lambda a: linalg.matrix_power(a, 3),
    "lu_factor": lambda a: linalg.lu_factor(a)[0],
    "lu": lambda a: linalg.lu(a)[2],
    "qr": lambda a: linalg.qr(a)[0],
    "singular_values": linalg.svdvals,
    "pinv": linalg.pinv,
    "matrix_norm": lambda a: linalg.matrix_norm(a, 2),
}


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
def test_square_matrices(values_close, name, shape):
    values_close(SQUARE[name], matrix(*shape))


POSITIVE = {
    "cholesky": linalg.cholesky,
    "cholesky_upper": lambda a: linalg.cholesky(a, upper=True),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(linalg.cholesky(a)),
    "eigenvalues": linalg.eigvalsh,
    "eigenvalues_upper": lambda a: linalg.eigvalsh(a, "U"),
    "eigenvectors": lambda a: linalg.eigh(a)[1].abs(),
}


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
def test_positive_matrices(values_close, name, shape):
    values_close(POSITIVE[name], positive(*shape))


SOLVES = {
    "solve": linalg.solve,
    "solve_transposed": lambda a, b: linalg.solve(a.mT, b),
    "solve_from_the_right": lambda a, b: linalg.solve(a, b.mT, left=False),
    "solve_vector": lambda a, b: linalg.solve(a, b[..., 0]),
    "lu_solve": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b),
    "lu_solve_adjoint": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True),
    "triangular": lambda a, b: linalg.solve_triangular(a, b, upper=False),
    "triangular_unit": lambda a, b: linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    "triangular_right": lambda a, b: linalg.solve_triangular(a, b.mT, upper=True, left=False),
    "old_triangular": lambda a, b: torch.triangular_solve(b, a, transpose=True)[0],
    "cholesky_solve": lambda a, b: torch.cholesky_solve(b, a.tril()),
}


@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_solvers(values_close, name, batch):
    values_close(SOLVES[name], matrix(*batch, 3, 3), matrix(*batch, 3, 2))


@pytest.mark.parametrize("name", ["inv", "det", "qr", "singular_values"])
def test_complex_matrices(no_fallback, name):
    a = matrix(3, 3, dtype=torch.complex64).detach()
    torch.testing.assert_close(SQUARE[name](a.to("tpu")).cpu(), SQUARE[name](a), **TOLERANCE)


@pytest.mark.parametrize("name", ["cholesky", "cholesky_upper", "eigenvalues"])
def test_complex_positive_matrices(no_fallback, name):
    a = positive(3, 3, dtype=torch.complex64).detach()
    torch.testing.assert_close(POSITIVE[name](a.to("tpu")).cpu(), POSITIVE[name](a), **TOLERANCE)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (0, 3)])
def test_rectangular_factors(no_fallback, shape):
    a = matrix(*shape).detach()
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(a.to("tpu"), mode)
        torch.testing.assert_close((q @ r).cpu(), a, **TOLERANCE)
        expected = linalg.qr(a, mode)
        assert q.shape == expected[0].shape
        assert r.shape == expected[1].shape
    assert linalg.qr(a.to("tpu"), "r")[0].shape == (0,)
    for full in (False, True):
        u, s, vh = linalg.svd(a.to("tpu"), full_matrices=full)
        assert u.shape == linalg.svd(a, full_matrices=full)[0].shape
        n = s.shape[-1]
        product = u[:, :n] * s @ vh[:n]
        torch.testing.assert_close(product.cpu(), a, **TOLERANCE)
    if shape[0]:
        p, lower, upper = linalg.lu(a.to("tpu"))
        torch.testing.assert_close((p @ lower @ upper).cpu(), a, **TOLERANCE)


def test_householder_reflectors(close):
    a = matrix(4, 3).detach()
    reflectors, taus = torch.geqrf(a)
    close(torch.geqrf, a)
    close(linalg.householder_product, reflectors, taus)
    for left in (True, False):
        for transpose in (True, False):
            close(
                lambda *x, o=(left, transpose): torch.ormqr(*x, *o), reflectors, taus, matrix(4, 4)
            )


def test_failures_are_reported(no_fallback):
    indefinite = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], device="tpu")
    assert linalg.cholesky_ex(indefinite).info.tolist() == [1, 0]
    with pytest.raises(RuntimeError, match="not positive-definite"):
        linalg.cholesky(indefinite)
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]], device="tpu")
    assert linalg.inv_ex(singular).info.item() == 2
    with pytest.raises(RuntimeError, match="singular"):
        linalg.solve(singular, singular)


@pytest.mark.parametrize("driver", [None, "gels", "gelsd", "gelss", "gelsy"])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 5)])
def test_least_squares(no_fallback, driver, shape):
    a, b = matrix(*shape).detach(), matrix(*shape[:-1], 2).detach()
    expected = linalg.lstsq(a, b, driver=driver)
    actual = linalg.lstsq(a.to("tpu"), b.to("tpu"), driver=driver)
    for x, y in zip(actual, expected):
        torch.testing.assert_close(x.cpu(), y, **TOLERANCE)


@pytest.mark.parametrize("name", ["inv", "det", "singular_values"])
def test_empty_matrices(no_fallback, name):
    for shape in [(0, 0), (0, 2, 2)]:
        a = torch.zeros(shape)
        torch.testing.assert_close(SQUARE[name](a.to("tpu")).cpu(), SQUARE[name](a))
