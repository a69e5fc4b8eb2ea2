"""Joining, repeating and rearranging agree with the CPU in values, strides and gradients."""

import pytest
import torch
from torch.nn import functional as F

X = torch.arange(24.0).reshape(2, 3, 4)

FUNCTIONS = {
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "cat_promotes": lambda x: torch.cat([x, x.int(), x.half()], -1),
    "cat_legacy_empty": lambda x: torch.cat([x, x.new_zeros(0)], 0),
    "stack": lambda x: torch.stack([x, x * 2], -1),
    "hstack": lambda x: torch.hstack([x, x]),
    "block_diag": lambda x: torch.block_diag(x[0], x[0, 0, 0], x[1, :1]),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: x.roll((1, -2), (0, 2)),
    "roll_flat": lambda x: x.roll(5),
    "rot90": lambda x: x.rot90(1, (1, 2)),
    "repeat": lambda x: x.repeat(2, 1, 2, 1),
    "repeat_none": lambda x: x.repeat(1, 0, 1),
    "tile": lambda x: x.tile(2, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: x.triu(1),
    "triu_far": lambda x: x.triu(-100),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "diagonal_below": lambda x: x.diagonal(-1, 0, 2),
    "diag_embed": lambda x: x.diag_embed(-1),
    "diag_embed_dims": lambda x: x.diag_embed(1, 0, 2),
    "diag": lambda x: x[0, 0].diag(1),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[:, :, 0] * 9, 0, 1, 2),
    "trace": lambda x: x[0].trace(),
    "cross": lambda x: torch.linalg.cross(x, x.flip(1), dim=1),
    "kron": lambda x: torch.kron(x[0], x[1]),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.reshape(1, 1, 4, 6), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.detach().reshape(1, 4, 2, 3), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_and_gradient(same_as_cpu, name):
    same_as_cpu(FUNCTIONS[name], X.clone().requires_grad_())


def test_scalars(same_as_cpu):
    same_as_cpu(lambda x: (x.flip(0), x.roll(1), x.repeat(3)), torch.tensor(2.0))


def test_repeat_interleave_with_a_known_size(same_as_cpu):
    def run(x, n):
        return torch.repeat_interleave(x, n, dim=1, output_size=6)

    same_as_cpu(run, X.clone().requires_grad_(), torch.tensor([1, 0, 5]))


def test_chunk_cat(same_as_cpu):
    same_as_cpu(lambda x: torch._chunk_cat([x, x[:, :2] * 2], 1, 2), X)


def test_integers_and_booleans(same_as_cpu):
    same_as_cpu(lambda x: (x.tril(), x.diag_embed(), x[0].trace()), X.int())
    same_as_cpu(lambda x: (x.triu(1), torch.cat([x, ~x])), X > 9)
