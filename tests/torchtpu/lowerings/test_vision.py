"""Grid sampling and sliding blocks agree with the CPU, forward and backward."""

import pytest
import torch
from torch.nn import functional as F

TOLERANCE = {"rtol": 1e-3, "atol": 5e-5}


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(same_as_cpu, mode, padding_mode, align_corners):
    image = torch.randn(2, 2, 5, 6, requires_grad=True)
    grid = (torch.rand(2, 3, 4, 2) * 3 - 1.5).requires_grad_()
    same_as_cpu(F.grid_sample, image, grid, mode, padding_mode, align_corners, tolerance=TOLERANCE)


@pytest.mark.parametrize("padding_mode", ["zeros", "reflection"])
def test_grid_sample_of_volumes(same_as_cpu, padding_mode):
    volume = torch.randn(1, 2, 3, 4, 5, requires_grad=True)
    grid = (torch.rand(1, 2, 3, 2, 3) * 3 - 1.5).requires_grad_()
    same_as_cpu(F.grid_sample, volume, grid, "bilinear", padding_mode, False, tolerance=TOLERANCE)


def test_affine_grid(same_as_cpu):
    theta = torch.randn(2, 2, 3, requires_grad=True)
    same_as_cpu(lambda t: F.affine_grid(t, [2, 1, 3, 4], align_corners=False), theta)


BLOCKS = {"kernel_size": (3, 2), "stride": (1, 2), "padding": 1, "dilation": (2, 1)}


def test_unfold(same_as_cpu):
    same_as_cpu(F.unfold, torch.randn(2, 3, 8, 6, requires_grad=True), **BLOCKS)


def test_fold(same_as_cpu):
    count = F.unfold(torch.zeros(1, 1, 8, 6), **BLOCKS).shape[2]
    blocks = torch.randn(2, 3 * 6, count, requires_grad=True)
    same_as_cpu(F.fold, blocks, output_size=(8, 6), **BLOCKS)


@pytest.mark.parametrize("function", [F.pixel_shuffle, F.channel_shuffle])
def test_shuffles(same_as_cpu, function):
    same_as_cpu(function, torch.randn(2, 4, 3, 3, requires_grad=True), 2)
