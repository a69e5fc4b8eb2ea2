"""Reductions and scans agree with the CPU: dims, dtypes, ties, NaN, empty tensors, gradients."""

import pytest
import torch

NAN, INF = float("nan"), float("inf")


def matrix(dtype=torch.float32, requires_grad=False):
    x = torch.tensor([[[3.0, -1.0, 2.5], [0.5, 7.0, -2.0]], [[1.0, 1.5, -4.0], [6.0, 0.25, 9.0]]])
    return x.to(dtype).requires_grad_(requires_grad)


REDUCTIONS = {
    "sum": torch.sum,
    "nansum": torch.nansum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "var": torch.var,
    "std": torch.std,
    "var_mean": torch.var_mean,
    "std_mean": torch.std_mean,
    "logsumexp": torch.logsumexp,
    "norm": lambda x, dim, keepdim=False: torch.norm(x, dim=dim, keepdim=keepdim),
    "vector_norm": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 3, dim, keepdim),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(("dim", "keepdim"), [(1, False), ((0, -1), True)])
def test_reduction_over_dims(same_as_cpu, name, dim, keepdim):
    same_as_cpu(lambda x: REDUCTIONS[name](x, dim, keepdim=keepdim), matrix(requires_grad=True))


ALL = (
    "sum nansum mean prod max min var std norm count_nonzero any all argmax argmin aminmax".split()
)


@pytest.mark.parametrize("name", ALL)
def test_reduction_over_everything(same_as_cpu, name):
    # The gradient of prod looks for zeros on the host.
    same_as_cpu(lambda x: getattr(torch, name)(x), matrix(requires_grad=name != "prod"))
    if name not in ("var", "std"):
        same_as_cpu(lambda x: getattr(torch, name)(x), torch.tensor(2.0))


@pytest.mark.parametrize("name", "sum prod max argmax any count_nonzero".split())
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_integers(same_as_cpu, name, dtype):
    x = torch.tensor([[0, 1, 2], [3, 1, 200]]).to(dtype)
    if name == "argmax" and dtype == torch.bool:
        pytest.skip("not defined for bool")
    same_as_cpu(lambda x: getattr(torch, name)(x), x)
    same_as_cpu(lambda x: getattr(torch, name)(x, dim=1), x)


@pytest.mark.parametrize("name", "max min argmax argmin aminmax amax any all".split())
def test_ties_nan_and_infinities(same_as_cpu, name):
    x = torch.tensor([[2.0, 5.0, 5.0], [1.0, 1.0, 3.0], [NAN, 4.0, NAN], [INF, -INF, INF]])
    same_as_cpu(lambda x: tuple_of(getattr(torch, name)(x, dim=1)), x)
    same_as_cpu(lambda x: tuple_of(getattr(torch, name)(x, dim=0, keepdim=True)), x)


def tuple_of(result):
    return tuple(result) if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", ["max", "min", "median", "cummax"])
def test_gradient_goes_to_the_chosen_element(same_as_cpu, name):
    same_as_cpu(lambda x: getattr(torch, name)(x, dim=1)[0], matrix(requires_grad=True))


EMPTY = {
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(1),
    "prod": lambda x: x.prod(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(1),
    "norm": lambda x: x.norm(dim=1),
    "var": lambda x: x.var(1),
    "cumsum": lambda x: x.cumsum(1),
    "amax": lambda x: x.amax(0),
    "max": lambda x: tuple(x.max(0)),
    "argmin": lambda x: x.argmin(0),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.filterwarnings("ignore:var")
def test_empty_tensors(same_as_cpu, name):
    same_as_cpu(EMPTY[name], torch.zeros(3, 0))


def test_dtype_argument(same_as_cpu):
    same_as_cpu(lambda x: x.sum(dtype=torch.float64), matrix())
    same_as_cpu(lambda x: x.mean(0, dtype=torch.float32), matrix(torch.int64))
    same_as_cpu(lambda x: x.cumsum(0, dtype=torch.int32), matrix())
    same_as_cpu(lambda x: x.prod(1, dtype=torch.float64), matrix(torch.int64))


@pytest.mark.parametrize("correction", [0, 1, 2, 5])
@pytest.mark.filterwarnings("ignore:var")
def test_correction(same_as_cpu, correction):
    same_as_cpu(lambda x: torch.var(x, -1, correction=correction), matrix(requires_grad=True))


@pytest.mark.parametrize("order", [0, 1, 2, 3, INF, -INF])
def test_norm_orders(same_as_cpu, order):
    x = matrix(requires_grad=order != 0)
    same_as_cpu(lambda x: torch.linalg.vector_norm(x, order, dim=(0, 2)), x)
    same_as_cpu(lambda x: torch.norm(x, p=order), x)


def test_bfloat16_sums_in_float32(same_as_cpu):
    x = torch.full((4096,), 1.0).bfloat16()
    same_as_cpu(lambda x: (x.sum(), x.mean(), x.norm(), x.var(correction=0)), x)
    same_as_cpu(lambda x: x.cumsum(0), x)


def test_logsumexp_of_infinities(same_as_cpu):
    x = torch.tensor([[-INF, -INF], [INF, 0.0], [NAN, 0.0], [-INF, 0.0]])
    same_as_cpu(lambda x: torch.logsumexp(x, 1), x)


def test_complex_reductions(same_as_cpu):
    z = torch.complex(matrix(), matrix().flip(0))
    same_as_cpu(lambda z: (z.sum(1), z.mean(), z.prod(2), z.var(0), z.norm(), z.cumsum(1)), z)


SCANS = "cumsum cumprod cummax cummin logcumsumexp".split()


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dim", [0, -1])
def test_scan(same_as_cpu, name, dim):
    same_as_cpu(lambda x: tuple_of(getattr(torch, name)(x, dim)), matrix(requires_grad=True))


@pytest.mark.parametrize("name", SCANS)
def test_scan_edges(same_as_cpu, name):
    x = torch.tensor([1.0, 3.0, 3.0, 2.0, -INF, NAN, 4.0])
    same_as_cpu(lambda x: tuple_of(getattr(torch, name)(x, 0)), x)
    same_as_cpu(lambda x: tuple_of(getattr(torch, name)(x, 0)), torch.tensor(2.0))
    if name != "logcumsumexp":
        same_as_cpu(lambda x: tuple_of(getattr(torch, name)(x, 0)), torch.tensor([2, 5, 5, 1]))


def test_dist_and_renorm(same_as_cpu):
    x = matrix(requires_grad=True)
    same_as_cpu(lambda x: torch.dist(x, x.detach().flip(0), 2), x)
    same_as_cpu(lambda x: torch.renorm(x, 2, 1, 5.0), x)


@pytest.mark.parametrize("name", ["std", "var"])
def test_no_variance_of_integers(name):
    with pytest.raises(RuntimeError, match="only support floating point"):
        getattr(torch, name)(torch.arange(4, device="tpu"))


@pytest.mark.parametrize("name", ["max", "min"])
def test_no_extremum_without_elements(name):
    with pytest.raises(RuntimeError, match="without elements"):
        getattr(torch, name)(torch.empty(0, device="tpu"))
