"""Padding agrees with the CPU, also where it cuts, and so do its gradients."""

import pytest
import torch
from torch.nn import functional as F


def tensor(*shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).requires_grad_()


@pytest.mark.parametrize("pad", [(1, 2), (-1, 2), (0, -2), (1, 0, 2, -1), (-2, -2)])
def test_constant(same_as_cpu, pad):
    same_as_cpu(lambda x: F.pad(x, pad, value=2.5), tensor(2, 3, 4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_constant_of_other_dtypes(same_as_cpu, dtype):
    same_as_cpu(lambda x: F.pad(x, (1, 1), value=1), tensor(2, 3).detach().to(dtype))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((2, 5), (2, 1)),
        ((1, 2, 5), (0, 3)),
        ((1, 2, 4, 5), (1, 2, 3, 0)),
        ((1, 1, 3, 4, 5), (1, 2, 0, 1, 2, 1)),
    ],
)
def test_padding_from_the_tensor(same_as_cpu, mode, shape, pad):
    if mode == "circular" and len(shape) == 2:
        pytest.skip("PyTorch has no such form")
    same_as_cpu(lambda x: F.pad(x, pad, mode=mode), tensor(*shape))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_bfloat16_gradient(same_as_cpu, mode):
    x = tensor(1, 2, 5).detach().bfloat16().requires_grad_()
    same_as_cpu(lambda x: F.pad(x, (2, 2), mode=mode), x)
