"""Convolutions agree with the CPU in all dimensions, with every option, and in their gradients."""

import pytest
import torch
from torch.nn import functional as F

SIZES = {1: (9,), 2: (7, 6), 3: (4, 5, 4)}
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def _operands(ndim, out_channels=4, in_channels=4, groups=1, kernel=3, transposed=False):
    channels = (in_channels, out_channels // groups)
    channels = channels if transposed else (out_channels, in_channels // groups)
    return (
        torch.randn(2, in_channels, *SIZES[ndim], requires_grad=True),
        torch.randn(*channels, *[kernel] * ndim, requires_grad=True),
        torch.randn(out_channels, requires_grad=True),
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"padding": "same"}],
    ids=str,
)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_convolution(same_as_cpu, ndim, options):
    same_as_cpu(CONV[ndim], *_operands(ndim), **options, tolerance=TOLERANCE)


@pytest.mark.parametrize("groups", [2, 4])
def test_groups(same_as_cpu, groups):
    operands = _operands(2, groups=groups)
    same_as_cpu(F.conv2d, *operands, groups=groups, padding=1, tolerance=TOLERANCE)


def test_different_options_for_each_dimension(same_as_cpu):
    same_as_cpu(
        F.conv2d,
        *_operands(2),
        stride=(2, 1),
        padding=(0, 2),
        dilation=(1, 2),
        tolerance=TOLERANCE,
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2, "groups": 2}],
    ids=str,
)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_transposed_convolution(same_as_cpu, ndim, options):
    operands = _operands(ndim, groups=options.get("groups", 1), transposed=True)
    same_as_cpu(TRANSPOSED[ndim], *operands, **options, tolerance=TOLERANCE)


def test_without_bias_and_without_batch(same_as_cpu):
    input_, weight, _ = _operands(2)
    same_as_cpu(F.conv2d, input_.detach()[0], weight, tolerance=TOLERANCE)


def test_empty_batch(same_as_cpu):
    same_as_cpu(F.conv2d, torch.randn(0, 3, 5, 5), torch.randn(2, 3, 3, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
def test_dtypes(same_as_cpu, dtype):
    input_, weight, bias = (
        (t.detach() * 3).round().to(dtype) if dtype == torch.int64 else t.detach().to(dtype)
        for t in _operands(2)
    )
    same_as_cpu(F.conv2d, input_, weight, bias)


def test_channels_last_keeps_its_layout(same_as_cpu):
    input_, weight, bias = (t.detach() for t in _operands(2))
    input_ = input_.contiguous(memory_format=torch.channels_last)
    same_as_cpu(F.conv2d, input_, weight, bias, tolerance=TOLERANCE)


def test_second_derivative(same_as_cpu):
    def gradient_of_gradient(x, w):
        (gx,) = torch.autograd.grad((F.conv2d(x, w, padding=1) ** 3).sum(), x, create_graph=True)
        return gx.square().sum()

    input_, weight, _ = _operands(2, out_channels=2)
    # The values are large; compare relative to them.
    tolerance = {"rtol": 1e-3, "atol": 1.0}
    same_as_cpu(gradient_of_gradient, input_, weight, tolerance=tolerance)
