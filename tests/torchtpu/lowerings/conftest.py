"""Comparison of an operation on the tpu device with the same on the CPU."""

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

TOLERANCES = {
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
    torch.float16: {"rtol": 2e-3, "atol": 1e-3},
    torch.float32: {"rtol": 2e-5, "atol": 1e-5},
}


def _to(device):
    def move(value):
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    return move


def _tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _compare(actual, expected, tolerance):
    if not isinstance(expected, torch.Tensor):
        assert actual == expected
        return
    assert actual.device.type == "tpu"
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.stride() == expected.stride() or expected.numel() <= 1
    options = tolerance or TOLERANCES.get(expected.dtype, {})
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True, **options)


@pytest.fixture
def same_as_cpu(no_fallback):
    """check(function, *args, tolerance=None, **kwargs): results (values, dtypes, shapes, strides)
    and the gradients of all arguments that require one are the same on both devices."""

    def check(function, *args, tolerance=None, **kwargs):
        outcomes = []
        for device in ("cpu", "tpu"):
            own_args, own_kwargs = tree_map(_to(device), (args, kwargs))
            results = function(*own_args, **own_kwargs)
            inputs = [t for t in _tensors((own_args, own_kwargs)) if t.requires_grad]
            gradients = []
            outputs = [r for r in _tensors(results) if r.requires_grad]
            if inputs and outputs:
                # Weights that differ from element to element, equal on both devices.
                weights = [
                    torch.linspace(0.5, 1.5, max(r.numel(), 1))[: r.numel()]
                    .reshape(r.shape)
                    .to(r.dtype)
                    .to(device)
                    for r in outputs
                ]
                gradients = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
            outcomes.append(tree_leaves((results, gradients)))
        expected, actual = outcomes
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            _compare(a, e, tolerance)

    return check
