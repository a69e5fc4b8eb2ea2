"""Pooling agrees with the CPU: maxima with their positions, averages, adaptive sizes, gradients."""

import pytest
import torch
from torch.nn import functional as F

NAN, INF = float("nan"), float("inf")
SIZES = {1: (11,), 2: (9, 8), 3: (5, 6, 4)}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_AVERAGE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def _input(ndim, channels=2):
    return torch.randn(2, channels, *SIZES[ndim], requires_grad=True)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 2, "stride": 1, "dilation": 2, "ceil_mode": True},
        {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_max_pool_and_positions(same_as_cpu, ndim, options):
    same_as_cpu(MAX[ndim], _input(ndim), **options, return_indices=True)


def test_ties_nan_and_minus_infinity(same_as_cpu):
    x = torch.randint(0, 3, (2, 1, 9, 8)).float()
    x[0, 0, 2, 2] = x[0, 0, 3, 3] = NAN  # the last NaN wins
    x[1] = -INF
    same_as_cpu(F.max_pool2d, x.requires_grad_(), 3, 2, 1, return_indices=True)
    same_as_cpu(F.adaptive_max_pool2d, x, (4, 3), return_indices=True)


def test_integers(same_as_cpu):
    x = torch.randint(-9, 9, (1, 2, 6, 6))
    same_as_cpu(F.max_pool2d, x, 3, 2, 1)
    same_as_cpu(F.avg_pool2d, x, 2)


def test_long_windows(same_as_cpu):
    x = torch.randn(2, 1, 300, requires_grad=True)
    same_as_cpu(F.max_pool1d, x, 100, 50, 50, return_indices=True)
    same_as_cpu(F.max_pool1d, x, 300, return_indices=True)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
        {"kernel_size": 2, "stride": 3, "ceil_mode": True},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_average_pool(same_as_cpu, ndim, options):
    same_as_cpu(AVERAGE[ndim], _input(ndim), **options)


def test_divisor_override_and_bfloat16(same_as_cpu):
    same_as_cpu(F.avg_pool2d, _input(2), 2, divisor_override=3)
    x = _input(2).detach().bfloat16().requires_grad_()
    same_as_cpu(F.avg_pool2d, x, 3)
    same_as_cpu(F.max_pool2d, x, 3)


@pytest.mark.parametrize("outputs", [1, 3, 4])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_adaptive_pools(same_as_cpu, ndim, outputs):
    same_as_cpu(ADAPTIVE_MAX[ndim], _input(ndim), outputs, return_indices=True)
    same_as_cpu(ADAPTIVE_AVERAGE[ndim], _input(ndim), outputs)


def test_unpool_puts_maxima_back(same_as_cpu):
    def run(x):
        values, positions = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(values, positions, 2, output_size=x.shape)

    same_as_cpu(run, _input(2))


def test_without_batch_and_with_empty_batch(same_as_cpu):
    same_as_cpu(F.max_pool2d, torch.randn(2, 6, 6), 2)
    same_as_cpu(F.max_pool2d, torch.randn(0, 2, 6, 6), 2)
    same_as_cpu(F.avg_pool2d, torch.randn(0, 2, 6, 6), 2)
