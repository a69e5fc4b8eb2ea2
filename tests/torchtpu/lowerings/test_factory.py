"""Tensors from nothing are those of the CPU."""

import pytest
import torch

FACTORIES = {
    "zeros": lambda **o: torch.zeros(2, 3, **o),
    "ones": lambda **o: torch.ones(2, 3, **o),
    "full": lambda **o: torch.full((2, 3), 7, **o),
    "full_float": lambda **o: torch.full((2,), 0.1, **o),
    "scalar": lambda **o: torch.scalar_tensor(3, **o),
    "eye": lambda **o: torch.eye(3, **o),
    "eye_wide": lambda **o: torch.eye(2, 4, **o),
    "arange": lambda **o: torch.arange(5, **o),
    "arange_step": lambda **o: torch.arange(7, -2, -2, **o),
    "arange_empty": lambda **o: torch.arange(3, 3, **o),
    "linspace": lambda **o: torch.linspace(-2, 3, 8, **o),
    "linspace_one": lambda **o: torch.linspace(2, 3, 1, **o),
    "linspace_none": lambda **o: torch.linspace(2, 3, 0, **o),
    "logspace": lambda **o: torch.logspace(0, 3, 4, 2, **o),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int32, torch.bfloat16])
def test_factory(no_fallback, name, dtype):
    options = {} if dtype is None else {"dtype": dtype}
    expected = FACTORIES[name](**options)
    actual = FACTORIES[name](device="tpu", **options)
    assert actual.device.type == "tpu"
    torch.testing.assert_close(actual.cpu(), expected)


OTHERS = {
    "arange_fraction": lambda d: torch.arange(0, 1, 0.1, device=d),
    "arange_start_fraction": lambda d: torch.arange(0.5, 3, device=d),
    "arange_large": lambda d: torch.arange(2**40, 2**40 + 3, device=d),
    "arange_out": lambda d: torch.arange(4, out=torch.empty(0, dtype=torch.int64, device=d)),
    "linspace_tensor": lambda d: torch.linspace(torch.tensor(1.0, device=d), 2, 3),
    "tril_indices": lambda d: torch.tril_indices(4, 3, 1, device=d),
    "tril_indices_below": lambda d: torch.tril_indices(4, 3, -2, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 4, -1, device=d),
    "triu_indices_none": lambda d: torch.triu_indices(2, 2, 5, device=d),
    "new_zeros": lambda d: torch.ones(3, device=d).new_zeros(2, 2),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2, 3, device=d).t()),
    "zero_": lambda d: torch.ones(4, 3, device=d)[1:].t().zero_(),
    "hann_window": lambda d: torch.hann_window(9, device=d),
    "one_hot": lambda d: torch.nn.functional.one_hot(torch.tensor([0, 2], device=d), 3),
    "complex": lambda d: torch.full((2,), 1 + 2j, device=d),
    "bool": lambda d: torch.full((2,), True, device=d),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_forms(no_fallback, name):
    torch.testing.assert_close(OTHERS[name]("tpu").cpu(), OTHERS[name]("cpu"))


def test_range_includes_its_end(no_fallback):
    with pytest.warns(UserWarning, match=r"torch\.range"):
        assert torch.range(1, 2, 0.5, device="tpu").tolist() == [1, 1.5, 2]


def test_another_fill_value_does_not_compile_again(no_fallback):
    from torchtpu.runtime.executable_cache import cache

    torch.full((3,), 2.0, device="tpu")
    before = len(cache.entries)
    assert torch.full((3,), 4.0, device="tpu").tolist() == [4, 4, 4]
    assert len(cache.entries) == before
