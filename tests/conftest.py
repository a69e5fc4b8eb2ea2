"""Shared by all tests: the device is registered, and the CPU fallback is an error."""

import os

os.environ.setdefault("TORCHTPU_PLATFORM", "cpu")

import pytest
import torch

import torchtpu

torchtpu._autoload()


@pytest.fixture(autouse=True)
def _seeded():
    """Every test starts from the same random state, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def no_fallback():
    """Within the test, an operator without a lowering raises."""
    from torchtpu.config import config

    before = config.fallback
    config.fallback = "error"
    yield
    config.fallback = before
