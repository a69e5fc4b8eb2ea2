"""Random numbers: right distributions, half-open intervals, one seed, and dropout's gradient."""

import math

import pytest
import torch
from torch.nn import functional as F

N = 20_000


def empty(dtype=torch.float32, n=N):
    return torch.empty(n, dtype=dtype, device="tpu")


# name -> (draws, mean, standard deviation)
DISTRIBUTIONS = {
    "rand": (lambda: torch.rand(N, device="tpu"), 0.5, 12**-0.5),
    "uniform": (lambda: empty().uniform_(-3, 5), 1, 8 * 12**-0.5),
    "uniform_bfloat16": (lambda: empty(torch.bfloat16).uniform_(-3, 5), 1, 8 * 12**-0.5),
    "randn": (lambda: torch.randn(N, device="tpu"), 0, 1),
    "normal": (lambda: empty().normal_(2, 3), 2, 3),
    "normal_float16": (lambda: empty(torch.float16).normal_(2, 3), 2, 3),
    "normal_tensor_float": (lambda: torch.normal(empty().fill_(2), 3.0), 2, 3),
    "normal_float_tensor": (lambda: torch.normal(2.0, empty().fill_(3)), 2, 3),
    "normal_tensors": (lambda: torch.normal(empty().fill_(2), empty().fill_(3)), 2, 3),
    "bernoulli_p": (lambda: empty().bernoulli_(0.3), 0.3, 0.21**0.5),
    "bernoulli": (lambda: torch.bernoulli(empty().fill_(0.3)), 0.3, 0.21**0.5),
    "exponential": (lambda: empty().exponential_(2), 0.5, 0.5),
    "geometric": (lambda: empty().geometric_(0.25), 4, 12**0.5),
    "log_normal": (lambda: empty().log_normal_(0, 0.5), math.exp(0.125), 0.604),
    "randint": (lambda: torch.randint(-5, 5, (N,), device="tpu"), -0.5, (99 / 12) ** 0.5),
    "random_from_to": (lambda: empty().random_(3, 13), 7.5, (99 / 12) ** 0.5),
    "poisson": (lambda: torch.poisson(empty().fill_(3.5)), 3.5, 3.5**0.5),
    "binomial": (lambda: torch.binomial(empty().fill_(10), empty().fill_(0.3)), 3, 2.1**0.5),
    "gamma": (lambda: torch._standard_gamma(empty().fill_(2.5)), 2.5, 2.5**0.5),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments(no_fallback, name):
    draw, mean, deviation = DISTRIBUTIONS[name]
    x = draw().cpu().double()
    assert abs(x.mean() - mean) < 5 * deviation / N**0.5
    assert abs(x.std() - deviation) < 0.05 * deviation


def test_cauchy_has_its_median_and_quartiles(no_fallback):
    quartiles = empty().cauchy_(1, 2).cpu().quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, torch.tensor([-1.0, 1.0, 3.0]), atol=0.15, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_uniform_never_returns_its_upper_limit(no_fallback, dtype):
    upper = 1 + 4 * torch.finfo(dtype).eps
    x = empty(dtype).uniform_(1, upper).cpu()
    assert x.min() >= 1
    assert x.max() < upper


def test_equal_limits(no_fallback):
    assert empty(n=3).uniform_(2, 2).tolist() == [2, 2, 2]


def test_certain_coins(no_fallback):
    for p in (0.0, 1.0):
        assert (empty().bernoulli_(p) == p).all()
        assert (torch.bernoulli(empty().fill_(p)) == p).all()


def test_complex_normal_has_unit_variance_in_all(no_fallback):
    x = torch.randn(N, dtype=torch.complex64, device="tpu").cpu()
    assert abs(x.real.var() - 0.5) < 0.03
    assert abs(x.imag.var() - 0.5) < 0.03


@pytest.mark.parametrize(
    ("dtype", "highest"),
    [(torch.int64, 2**63), (torch.int32, 2**31), (torch.int8, 2**7), (torch.bool, 2)],
)
def test_random_covers_the_dtype(no_fallback, dtype, highest):
    x = empty(dtype).random_().cpu().double()
    assert x.min() >= 0
    assert x.max() < highest * 1.0000001
    assert abs(x.mean() / highest - (0.25 if dtype is torch.bool else 0.5)) < 0.02


def test_random_over_all_64_bits(no_fallback):
    x = empty(torch.int64).random_(-(2**63), None).cpu().double()
    assert x.min() < -0.99 * 2**63
    assert x.max() > 0.99 * 2**63
    x = empty(torch.int64).random_(-(2**62), 2**62).cpu()
    assert x.min() >= -(2**62)
    assert x.max() < 2**62


def test_randperm(no_fallback):
    x = torch.randperm(500, device="tpu").cpu()
    assert x.sort().values.tolist() == list(range(500))
    assert x.tolist() != list(range(500))
    assert torch.randperm(0, device="tpu").numel() == 0


WEIGHTS = torch.tensor([[0.1, 0.0, 0.2, 0.7], [5.0, 5.0, 0.0, 0.0]])


def test_multinomial_with_replacement(no_fallback):
    x = torch.multinomial(WEIGHTS.to("tpu"), N, replacement=True).cpu()
    for row, weights in zip(x, WEIGHTS):
        frequencies = row.bincount(minlength=4) / N
        torch.testing.assert_close(frequencies, weights / weights.sum(), atol=0.02, rtol=0)
        assert (frequencies[weights == 0] == 0).all()


def test_multinomial_single_draws(no_fallback):
    x = torch.multinomial(WEIGHTS[0].expand(N, 4).to("tpu"), 1).cpu().flatten()
    torch.testing.assert_close(x.bincount(minlength=4) / N, WEIGHTS[0], atol=0.02, rtol=0)


def test_multinomial_without_replacement_draws_each_once(no_fallback):
    x = torch.multinomial(torch.ones(50, 6, device="tpu"), 6).cpu()
    assert (x.sort(-1).values == torch.arange(6)).all()


def test_dirichlet_sums_to_one(no_fallback):
    x = torch.distributions.Dirichlet(torch.ones(5, 3, device="tpu")).sample().cpu()
    torch.testing.assert_close(x.sum(-1), torch.ones(5))


def test_gamma_gradient(same_as_cpu):
    alpha, sample = torch.tensor([0.5, 1.0, 3.0]), torch.tensor([0.4, 1.2, 2.0])
    same_as_cpu(torch._standard_gamma_grad, alpha, sample, tolerance={"rtol": 2e-3, "atol": 1e-4})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scales_what_it_keeps_and_its_gradient(no_fallback, dtype):
    x = torch.ones(N, dtype=dtype, device="tpu", requires_grad=True)
    y = F.dropout(x, 0.2)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert set(y.tolist()) == {0.0, torch.tensor(1.25, dtype=dtype).item()}
    assert abs((y != 0).float().mean().item() - 0.8) < 0.02
    assert torch.equal(gradient.cpu(), y.detach().cpu())


def test_dropout_keeps_nan_as_the_cpu_does(no_fallback):
    x = torch.full((100,), float("nan"), device="tpu", requires_grad=True)
    assert F.dropout(x, 0.5).isnan().all()


def test_a_seed_gives_the_same_numbers_and_a_call_different_ones(no_fallback):
    torch.manual_seed(5)
    first, second = torch.randn(4, device="tpu").cpu(), torch.randn(4, device="tpu").cpu()
    torch.manual_seed(5)
    assert torch.equal(torch.randn(4, device="tpu").cpu(), first)
    assert not torch.equal(first, second)
