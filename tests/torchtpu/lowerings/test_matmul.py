"""Matrix products agree with the CPU: values, alpha and beta, dtypes, empty sizes, gradients."""

import pytest
import torch

NAN = float("nan")
B, N, K, M = 2, 3, 5, 4


def _random(*shape, dtype=torch.float32):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=dtype).requires_grad_(dtype == torch.float32)
    return torch.randint(-5, 5, shape, dtype=dtype)


# name -> function, shapes of its operands
PRODUCTS = {
    "mm": (torch.mm, (N, K), (K, M)),
    "bmm": (torch.bmm, (B, N, K), (B, K, M)),
    "mv": (torch.mv, (N, K), (K,)),
    "dot": (torch.dot, (K,), (K,)),
    "vdot": (torch.vdot, (K,), (K,)),
    "outer": (torch.outer, (N,), (M,)),
    "matmul_broadcast": (torch.matmul, (B, 1, N, K), (3, K, M)),
    "linear": (torch.nn.functional.linear, (B, N, K), (M, K), (M,)),
    "bilinear": (torch.nn.functional.bilinear, (B, N), (B, K), (M, N, K), (M,)),
}
SUMS = {
    "addmm": (torch.addmm, (N, M), (N, K), (K, M)),
    "addmm_bias": (torch.addmm, (M,), (N, K), (K, M)),
    "addmv": (torch.addmv, (N,), (N, K), (K,)),
    "addr": (torch.addr, (N, M), (N,), (M,)),
    "addbmm": (torch.addbmm, (N, M), (B, N, K), (B, K, M)),
    "baddbmm": (torch.baddbmm, (B, N, M), (B, N, K), (B, K, M)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_product_and_gradients(same_as_cpu, name):
    function, *shapes = PRODUCTS[name]
    same_as_cpu(function, *(_random(*shape) for shape in shapes))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.complex64])
@pytest.mark.parametrize("name", ["mm", "bmm", "mv"])
def test_dtypes(same_as_cpu, name, dtype):
    function, *shapes = PRODUCTS[name]
    same_as_cpu(function, *(_random(*shape, dtype=dtype) for shape in shapes))


def test_vdot_conjugates_its_first_operand(same_as_cpu):
    same_as_cpu(torch.vdot, *(torch.randn(4, dtype=torch.complex64) for _ in range(2)))


@pytest.mark.parametrize("name", SUMS)
def test_alpha_and_beta(same_as_cpu, name):
    function, *shapes = SUMS[name]
    operands = [_random(*shape) for shape in shapes]
    same_as_cpu(function, *operands)
    same_as_cpu(function, *operands, beta=0.5, alpha=-2)


@pytest.mark.parametrize("name", ["addmm", "addmv", "addbmm", "baddbmm"])
def test_beta_zero_ignores_nan(same_as_cpu, name):
    function, first, *shapes = SUMS[name]
    same_as_cpu(function, torch.full(first, NAN), *(_random(*s) for s in shapes), beta=0)


def test_other_alpha_compiles_nothing_new(no_fallback):
    from torchtpu.runtime.executable_cache import cache

    operands = [torch.randn(3, 3, device="tpu") for _ in range(3)]
    torch.addmm(*operands, alpha=0.25)
    before = len(cache.entries)
    torch.addmm(*operands, alpha=0.75)
    assert len(cache.entries) == before


def test_addr_of_bools_is_logical(same_as_cpu):
    same_as_cpu(torch.addr, *(torch.rand(s) > 0.5 for s in ((3, 4), (3,), (4,))))


def test_int8_products_wrap_and_int_mm_does_not(same_as_cpu):
    a, b = (torch.randint(-100, 100, (24, 24), dtype=torch.int8) for _ in range(2))
    same_as_cpu(torch.mm, a, b)
    same_as_cpu(torch._int_mm, a, b)


@pytest.mark.parametrize(("n", "k", "m"), [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty_sizes(same_as_cpu, n, k, m):
    same_as_cpu(torch.mm, torch.randn(n, k), torch.randn(k, m))
    same_as_cpu(torch.addmm, torch.randn(m), torch.randn(n, k), torch.randn(k, m))


def test_bfloat16_accumulates_in_float32(same_as_cpu):
    a, b = torch.ones(1, 4096).bfloat16(), torch.full((4096, 1), 1.0).bfloat16()
    same_as_cpu(torch.mm, a, b, tolerance={"rtol": 0, "atol": 0})


@pytest.mark.parametrize("use_gelu", [False, True])
def test_addmm_activation(same_as_cpu, use_gelu):
    operands = [torch.randn(s) for s in ((M,), (N, K), (K, M))]
    same_as_cpu(torch._addmm_activation, *operands, use_gelu=use_gelu)
