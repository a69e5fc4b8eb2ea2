"""Upsampling of every kind agrees with the CPU, forward and backward."""

import pytest
import torch
from torch.nn import functional as F

SIZES = {1: (7,), 2: (6, 5), 3: (4, 3, 5)}
MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}
CASES = [(mode, ndim) for mode, ndims in MODES.items() for ndim in ndims]
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def _input(ndim):
    return torch.randn(1, 2, *SIZES[ndim], requires_grad=True)


@pytest.mark.parametrize("scale", [2, 1.7, 0.6])
@pytest.mark.parametrize(("mode", "ndim"), CASES)
def test_scale_factor(same_as_cpu, mode, ndim, scale):
    same_as_cpu(F.interpolate, _input(ndim), scale_factor=scale, mode=mode, tolerance=TOLERANCE)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 9), (1, 1), (6, 5)], ids=str)
def test_size_and_align_corners(same_as_cpu, mode, size, align_corners):
    same_as_cpu(
        F.interpolate,
        _input(2),
        size=size,
        mode=mode,
        align_corners=align_corners,
        tolerance=TOLERANCE,
    )


@pytest.mark.parametrize("size", [(3, 2), (9, 4)], ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(same_as_cpu, mode, size):
    same_as_cpu(F.interpolate, _input(2), size=size, mode=mode, antialias=True, tolerance=TOLERANCE)


def test_bfloat16_and_bytes(same_as_cpu):
    x = _input(2).detach()
    same_as_cpu(F.interpolate, x.bfloat16(), scale_factor=2, mode="bilinear")
    same_as_cpu(F.interpolate, (x * 20 + 100).byte(), scale_factor=2, mode="nearest")
