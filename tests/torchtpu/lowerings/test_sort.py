"""Sorting and order statistics agree with the CPU: order, NaN, ties and gradients."""

import pytest
import torch

NAN = float("nan")
X = torch.tensor([[3.0, 1.0, 2.0, 1.0, 5.0], [0.0, -1.0, 4.0, 4.0, -7.0]])
WITH_NAN = torch.tensor([[3.0, NAN, 2.0, 1.0, -NAN], [0.0, -1.0, 4.0, float("inf"), NAN]])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("x", [X, WITH_NAN, X.bfloat16(), X.to(torch.int64), X > 1])
def test_stable_sort(same_as_cpu, x, descending):
    same_as_cpu(lambda x: torch.sort(x, stable=True, dim=1, descending=descending), x)


def test_sort_gradient_argsort_and_msort(same_as_cpu):
    x = torch.tensor([[3.0, 1.0], [2.0, 7.0], [5.0, 0.0]], requires_grad=True)
    same_as_cpu(lambda x: (torch.sort(x, 0), x.argsort(-1), x.msort()), x)


def test_scalars_and_empty(same_as_cpu):
    same_as_cpu(lambda x: (x.sort(), x.topk(1), x.kthvalue(1), x.median(0)), torch.tensor(2.0))
    same_as_cpu(lambda x: (x.sort(1), x.topk(0)), torch.zeros(2, 0))


def test_smallest_integer_sorts_first(same_as_cpu):
    x = torch.tensor([0, -(2**63), 2**63 - 1, 1])
    same_as_cpu(lambda x: (x.sort(descending=True), x.topk(2, largest=False)), x)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dim", [0, 1])
def test_topk(same_as_cpu, largest, dim):
    x = torch.tensor([[3.0, 1.0, 2.0], [0.0, -1.0, 4.0], [9.0, 6.0, 8.0]], requires_grad=True)
    same_as_cpu(lambda x: x.topk(2, dim, largest), x)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_counts_nan_as_the_greatest(same_as_cpu, largest):
    same_as_cpu(lambda x: x.topk(3, 1, largest).values, WITH_NAN)


def test_topk_of_integers(same_as_cpu):
    same_as_cpu(
        lambda x: (x.topk(2), x.topk(2, largest=False)), torch.tensor([3, 9, 250, 0]).byte()
    )


@pytest.mark.parametrize("keepdim", [False, True])
def test_kthvalue_and_medians(same_as_cpu, keepdim):
    x = torch.tensor([[3.0, 1.0, 2.0, 8.0], [0.0, -1.0, 4.0, 6.0]], requires_grad=True)
    same_as_cpu(lambda x: x.kthvalue(3, 1, keepdim), x)
    same_as_cpu(lambda x: x.median(1, keepdim), x)
    same_as_cpu(lambda x: x.nanmedian(0, keepdim), x)


def test_medians_of_everything(same_as_cpu):
    x = X.clone().requires_grad_()
    same_as_cpu(lambda x: (x.median(), x.nanmedian()), x)
    same_as_cpu(lambda x: (x.median(), x.nanmedian(), x.median(1)), WITH_NAN)
    same_as_cpu(lambda x: x.median(), X.int())


def test_quantiles(same_as_cpu):
    same_as_cpu(lambda x: x.quantile(0.3, 1), X.clone().requires_grad_())
    same_as_cpu(lambda x: x.nanquantile(torch.tensor([0.2, 0.9], device=x.device)), WITH_NAN)


def test_mode(same_as_cpu):
    x = torch.tensor([[2, 1, 2, 1, 0], [5, 5, 5, 0, 0]])
    same_as_cpu(lambda x: (x.mode(1), x.mode(0, keepdim=True).values), x)


@pytest.mark.parametrize("count", [2, 40])
def test_isin(same_as_cpu, count):
    tests = torch.arange(count) * 3
    same_as_cpu(torch.isin, torch.arange(10).reshape(2, 5), tests)
    same_as_cpu(lambda x, t: torch.isin(x, t, invert=True), torch.arange(4.0), tests)


def test_isin_of_numbers(same_as_cpu):
    same_as_cpu(lambda x: (torch.isin(x, 3), torch.isin(2, x)), torch.arange(5))
