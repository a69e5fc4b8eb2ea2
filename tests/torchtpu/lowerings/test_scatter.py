"""gather and the scatter family agree with the CPU, also for indices smaller than the tensor."""

import pytest
import torch

X = (torch.arange(24.0) * 7 % 13 - 6).reshape(4, 6)
SRC = (torch.arange(24.0) * 5 % 11 - 4).reshape(4, 6) / 2
INDEX = (torch.arange(12) * 3 % 4).reshape(3, 4)


def grad(x):
    return x.clone().requires_grad_(x.is_floating_point())


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_gather(same_as_cpu, dim, dtype):
    same_as_cpu(lambda x, i: x.gather(dim, i), grad(X.to(dtype)), INDEX)


def test_gather_in_3_dimensions(same_as_cpu):
    x = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    same_as_cpu(lambda x, i: x.gather(1, i), x, torch.tensor([2, 0, 1, 1]).reshape(1, 1, 4))


def test_scalars_and_empty_indices(same_as_cpu):
    zero = torch.zeros((), dtype=torch.int64)
    same_as_cpu(lambda x, i: x.gather(0, i), torch.tensor(3.0, requires_grad=True), zero)
    same_as_cpu(lambda x, i: x.scatter(0, i, 2.0), torch.tensor(3.0), zero)
    same_as_cpu(lambda x, i: x.gather(1, i), grad(X), INDEX[:0])
    same_as_cpu(lambda x, i: x.scatter_add(1, i, x), X, INDEX[:0])


SCATTERS = {
    "number": lambda x, i, s: x.scatter(1, i, 2.5),
    "add_number": lambda x, i, s: x.scatter(1, i, 2.5, reduce="add"),
    "multiply": lambda x, i, s: x.detach().scatter(0, i, s.detach(), reduce="multiply"),
    "add": lambda x, i, s: x.scatter_add(0, i, s),
    "add_in_place": lambda x, i, s: x.clone().scatter_add_(1, i, s),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatter(same_as_cpu, name):
    x = X if name == "add_number" else grad(X)
    same_as_cpu(SCATTERS[name], x, INDEX, grad(SRC[:3, :4]))


def test_scatter_of_a_larger_source(same_as_cpu):
    same_as_cpu(lambda x, i, s: x.scatter_add(0, i, s), X, INDEX, SRC)


def test_scatter_of_a_tensor(same_as_cpu):
    index = torch.tensor([[1, 0, 3, 2], [3, 2, 1, 0]])  # no index repeats along dim 1
    same_as_cpu(lambda x, i, s: x.scatter(1, i, s), grad(X), index, grad(SRC[:2, :4]))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scatter_reduce(same_as_cpu, reduce, include_self, dtype):
    def run(x, i, s):
        return x.scatter_reduce(1, i, s, reduce, include_self=include_self)

    same_as_cpu(run, X.to(dtype), INDEX, SRC.to(dtype))


def test_scatter_reduce_propagates_nan(same_as_cpu):
    src = SRC.clone()
    src[0, 1] = float("nan")
    same_as_cpu(lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), X, INDEX, src)


def test_16_bit_sums_round_once(no_fallback):
    ones = torch.ones(1000, dtype=torch.bfloat16, device="tpu")
    index = torch.zeros(1000, dtype=torch.int64, device="tpu")
    total = torch.zeros(1, dtype=torch.bfloat16, device="tpu").scatter_add(0, index, ones)
    assert total.item() == 1000
