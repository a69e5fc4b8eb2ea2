"""Storages, views, strides, versions and dtypes of tpu tensors, against the CPU."""

import copy

import pytest
import torch


def _both(make):
    """The same tensor on the CPU and on tpu."""
    cpu = make()
    return cpu, cpu.to("tpu")


def _assert_same(ours, theirs):
    assert ours.device.type == "tpu"
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


def test_a_tpu_tensor_is_a_plain_tensor():
    x = torch.ones(2, 3, device="tpu")
    assert type(x) is torch.Tensor
    assert x.is_tpu
    assert str(x.device) == "tpu:0"


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    ],
)
def test_dtypes_are_kept_exactly_both_ways(dtype):
    values = torch.tensor([0, 1, 2**40 + 1, -3]) if dtype == torch.int64 else torch.arange(4)
    x = values.to(dtype)
    if dtype == torch.float64:
        x = x + 1e-12
    _assert_same(x.to("tpu"), x)
    _assert_same(x.to("tpu").clone().reshape(2, 2), x.reshape(2, 2))


def test_64_bit_arithmetic_is_not_narrowed():
    x = torch.tensor([2**40 + 1, -(2**50)], device="tpu")
    assert (x * 3).tolist() == [3 * (2**40 + 1), -3 * 2**50]
    y = torch.tensor([1.0], dtype=torch.float64, device="tpu")
    assert ((y + 1e-12) - y).item() == pytest.approx(1e-12, rel=1e-3)
    assert torch.arange(3, device="tpu").sum().dtype == torch.int64


def test_an_unsupported_dtype_is_an_error():
    with pytest.raises(TypeError, match="XLA has no such type"):
        torch.zeros(2).to(torch.float8_e8m0fnu).to("tpu")


def test_writing_through_views_of_views():
    cpu, tpu = _both(lambda: torch.arange(6.0))
    for y in (cpu, tpu):
        y.view(2, 3)[0, 0] = 5
        y.view(2, 3).t()[0, 1] = 7
        y.detach().mul_(2)
        y[::2].add_(1)
        y.view(3, 2).diagonal().fill_(-1)
    _assert_same(tpu, cpu)


def test_uninitialised_storage_can_be_written_in_parts():
    x = torch.empty(4, device="tpu")
    x[:2] = 1
    x[2:] = torch.tensor([2.0, 3.0])
    assert x.tolist() == [1, 1, 2, 3]


def test_out_writes_into_a_view_and_resizes_an_empty_tensor():
    a = torch.arange(4.0, device="tpu")
    base = torch.zeros(2, 4, device="tpu")
    torch.add(a, a, out=base[1])
    assert base.tolist() == [[0, 0, 0, 0], [0, 2, 4, 6]]
    out = torch.empty(0, device="tpu")
    assert torch.mul(a, 3, out=out) is out
    assert out.tolist() == [0, 3, 6, 9]
    values, indices = torch.empty(0, device="tpu"), torch.empty(0, dtype=torch.long, device="tpu")
    torch.max(a.view(2, 2), 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1, 3], [1, 1])


def test_channels_last_strides_follow_the_cpu():
    cpu, tpu = _both(lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
    _assert_same(tpu, cpu)
    _assert_same(tpu + 1, cpu + 1)
    _assert_same(tpu.contiguous(), cpu.contiguous())
    again = tpu.contiguous().contiguous(memory_format=torch.channels_last)
    _assert_same(again, cpu)
    assert tpu.is_contiguous(memory_format=torch.channels_last)
    weight = torch.randn(6, 3, 3, 3)
    ours = torch.nn.functional.conv2d(tpu, weight.to("tpu"))
    theirs = torch.nn.functional.conv2d(cpu, weight)
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4), ()])
def test_zero_size_and_0d_tensors(shape):
    cpu, tpu = _both(lambda: torch.ones(shape))
    _assert_same(tpu * 2, cpu * 2)
    _assert_same(tpu.sum(), cpu.sum())
    _assert_same(tpu.clone().fill_(3), cpu.clone().fill_(3))
    _assert_same(torch.cat([tpu.reshape(-1)] * 2), torch.cat([cpu.reshape(-1)] * 2))


def test_set_resize_and_as_strided():
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0).to(device)
        y = torch.empty(0).to(device)
        y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
        assert y.tolist() == [[1, 2], [3, 4]]
        y[0, 0] = 9
        assert x.tolist() == [0, 9, 2, 3, 4, 5]
        x.resize_(2, 2)
        assert x.tolist() == [[0, 9], [2, 3]]
        x.resize_(8)
        assert x[:6].tolist() == [0, 9, 2, 3, 4, 5]
        t = torch.arange(6.0).to(device).view(2, 3).t()
        assert t.resize_(3, 2).stride() == (1, 3)
        x.as_strided_((2,), (3,), 1)
        assert x.tolist() == [9, 4]
        z = torch.arange(4.0).to(device)
        with pytest.raises(RuntimeError, match="out of bounds"):
            z.as_strided((3,), (2,))


def test_assigning_data_shares_the_storage():
    x, y = torch.zeros(2, device="tpu"), torch.ones(3, device="tpu")
    x.data = y
    x.add_(1)
    assert y.tolist() == [2, 2, 2]


def test_clones_are_independent():
    x = torch.zeros(3, device="tpu")
    y = x.clone()
    z = copy.deepcopy(x)
    x.add_(1)
    assert (x.tolist(), y.tolist(), z.tolist()) == ([1] * 3, [0] * 3, [0] * 3)


def test_a_host_tensor_may_change_after_the_copy():
    host = torch.zeros(1000)
    x = host.to("tpu", non_blocking=True)
    host.fill_(1)
    assert x.sum().item() == 0


def test_version_counters_catch_a_changed_saved_tensor():
    x = torch.ones(2, device="tpu", requires_grad=True)
    y = x * 2
    z = y * y
    version = y._version
    y.add_(1)
    assert y._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_writing_to_an_expanded_tensor_is_refused():
    x = torch.zeros(1, device="tpu").expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)
    torch.zeros(0, 1, device="tpu").expand(0, 3).add_(1)  # no element, no overlap


def test_mixed_devices_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="tpu") + torch.ones(2)


def test_numbers_of_different_type_do_not_share_an_executable():
    x = torch.tensor([5, 7], device="tpu")
    for number in (2, 2.0, True, 2, 0.5, -0.0, 0.0, float("nan"), float("nan")):
        for function in (torch.mul, torch.add, lambda a, b: torch.full_like(a, b, dtype=None)):
            theirs = function(torch.tensor([5, 7]), number) if number == number else None
            if theirs is not None:
                _assert_same(function(x, number), theirs)
    one, other = x.float().clamp(min=6), x.float().clamp(max=6)
    assert (one.tolist(), other.tolist()) == ([6, 7], [5, 6])


def test_another_number_does_not_compile_again(no_fallback):
    from torchtpu import metrics

    x = torch.ones(5, 3, device="tpu")
    compiles = []
    for step in range(3):
        x.mul_(0.5 + step).add_(x, alpha=0.25 * step + 0.1)
        x.addcdiv_(x, x + 7, value=step + 0.3)
        compiles.append(metrics.compiles())
    assert compiles[1:] == compiles[:1] * 2


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.tensor(2), 1.5),
        (torch.tensor([2]), 1.5),
        (torch.tensor([2], dtype=torch.int8), 300),
        (torch.tensor([2], dtype=torch.int8), torch.tensor(3)),
        (torch.tensor([2.0]), torch.tensor(3.0, dtype=torch.float64)),
        (torch.tensor(2.0), torch.tensor(3.0, dtype=torch.float64)),
        (torch.tensor([2.0], dtype=torch.bfloat16), torch.tensor([3.0], dtype=torch.float16)),
        (torch.tensor([True]), 2),
        (torch.tensor([1.0]), 1j),
    ],
)
def test_type_promotion(left, right):
    ours_right = right.to("tpu") if isinstance(right, torch.Tensor) else right
    _assert_same(left.to("tpu") * ours_right, left * right)
    if isinstance(right, torch.Tensor) and right.dim() == 0:
        _assert_same(left.to("tpu") * right, left * right)  # a 0-d CPU tensor is a number


def test_type_as_leaves_its_input_alone():
    x = torch.ones(2, device="tpu")
    y = x.type_as(torch.ones(1, dtype=torch.float64, device="tpu"))
    assert (x.dtype, y.dtype) == (torch.float32, torch.float64)


def test_dropout_is_reproducible_and_differs_from_call_to_call():
    x = torch.ones(1000, device="tpu")
    torch.manual_seed(7)
    first, second = (torch.nn.functional.dropout(x, 0.5) for _ in range(2))
    torch.manual_seed(7)
    again = torch.nn.functional.dropout(x, 0.5)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 2.0}
    assert 400 < first.count_nonzero().item() < 600


def test_float32_precision_is_part_of_the_executable():
    from torchtpu.dispatch import kernels
    from torchtpu.runtime.executable_cache import cache

    a = torch.randn(4, 7, device="tpu")
    before = torch.get_float32_matmul_precision()
    kernel = kernels[torch.ops.aten.mm.default]
    try:
        found = set()
        for precision in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(precision)
            a @ a.t()
            found |= {k for k in cache.entries if k[0] is kernel and k[-1] == precision}
    finally:
        torch.set_float32_matmul_precision(before)
    assert len({k[-1] for k in found}) == 3


def test_gradients_survive_a_mixed_graph():
    def gradients(device):
        a, b, c = (torch.arange(1.0, 5).view(2, 2).to(device).requires_grad_() for _ in range(3))
        (torch.einsum("ij,jk->ik", a, b) + c).exp().mean().mul(1e-3).backward()
        return [t.grad.cpu() for t in (a, b, c)]

    torch.testing.assert_close(gradients("tpu"), gradients("cpu"), rtol=1e-4, atol=0)


def test_boolean_masks():
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0).view(2, 3).to(device)
        x[x > 3] = -1
        assert x.tolist() == [[0, 1, 2], [3, -1, -1]]


def test_a_missing_operator_is_named_counted_and_can_be_forbidden():
    from torchtpu import metrics
    from torchtpu.config import config
    from torchtpu.errors import FallbackError

    x = torch.tensor([1, 1, 2], device="tpu")
    before, config.fallback = config.fallback, "allow"
    try:
        count = metrics.fallbacks().get("aten::bincount", 0)
        assert x.bincount().tolist() == [0, 2, 1]
        assert metrics.fallbacks()["aten::bincount"] == count + 1
        config.fallback = "error"
        with pytest.raises(FallbackError, match="aten::bincount"):
            x.bincount()
    finally:
        config.fallback = before


def test_results_written_into_one_storage_are_all_there(monkeypatch):
    from torchtpu.config import config

    monkeypatch.setattr(config, "fallback", "allow")
    x = torch.tensor([3.0, 1.0, 2.0], device="tpu")
    apart, other, shared = (torch.zeros(2, device="tpu") for _ in range(3))
    torch.aminmax(x, out=(apart[0], other[1]))
    torch.aminmax(x, out=(shared[0], shared[1]))  # the same call, but for what shares a storage
    assert (apart.tolist(), other.tolist()) == ([1, 0], [0, 3])
    assert shared.tolist() == [1, 3]


def test_debug_mode_checks_indices_and_names_the_line():
    from torchtpu.config import config

    x, index = torch.zeros(3, device="tpu"), torch.tensor([5], device="tpu")
    config.eager_mode = "debug"
    try:
        with pytest.raises(IndexError, match=r"out of bounds(.|\n)*test_tensor.py"):
            x.index_select(0, index)
        with pytest.raises(IndexError, match=r"out of bounds(.|\n)*test_tensor.py"):
            torch.nn.functional.cross_entropy(torch.zeros(1, 3, 1, device="tpu"), index[None])
        config.debug_nans = "1"
        with pytest.raises(RuntimeError, match=r"NaN(.|\n)*test_tensor.py"):
            x / x
    finally:
        config.eager_mode, config.debug_nans = "strict", "0"


def test_partly_overlapping_writes_are_refused():
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0).to(device)
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].copy_(x[:-1])
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])
        x[3:].add_(x[:3])  # side by side is fine
        x.mul_(x)  # and so is the tensor itself
        assert x.tolist() == [0, 1, 4, 9, 25, 49]


def test_the_default_dtype_is_part_of_what_integers_become():
    i = torch.tensor([1, 2], device="tpu")

    def dtypes():
        results = [
            torch.ones(2, device="tpu"),
            i / 2,
            i.sqrt(),
            i * 1.5,
            i / i,
            torch.full((2,), 1.0).to("tpu"),
        ]
        return {result.dtype for result in results}

    for _ in range(2):
        assert dtypes() == {torch.float32}
    torch.set_default_dtype(torch.float64)
    try:
        for _ in range(2):
            assert dtypes() == {torch.float64}
    finally:
        torch.set_default_dtype(torch.float32)
    assert dtypes() == {torch.float32}


@pytest.mark.parametrize(
    "call",
    [
        lambda a, i: a.index_select(1, i(3)),
        lambda a, i: a.gather(1, i(3).view(1, 1)),
        lambda a, i: a.scatter(1, i(3).view(1, 1), 1.0),
        lambda a, i: a.scatter_add(1, i(3).view(1, 1), a),
        lambda a, i: a.scatter_reduce(1, i(3).view(1, 1), a, "sum"),
        lambda a, i: a.index_reduce(0, i(2), a[:1], "amax"),
        lambda a, i: a.index_add(0, i(2), a[:1]),
        lambda a, i: a.put(i(6), i(1).float()),
        lambda a, i: a.take(i(6)),
        lambda a, i: a[i(2)],
        lambda a, i: torch.nn.functional.embedding(i(2), a),
        lambda a, i: torch.nn.functional.embedding_bag(i(2), a, i(0)),
        lambda a, i: torch.nn.functional.nll_loss(a, i(0, 3)),
    ],
)
def test_debug_mode_refuses_indices_out_of_range(call):
    from torchtpu.config import config

    a = torch.arange(6.0, device="tpu").view(2, 3)
    config.eager_mode = "debug"
    try:
        with pytest.raises(IndexError, match="out of bounds"):
            call(a, lambda *values: torch.tensor(values, device="tpu"))
    finally:
        config.eager_mode = "strict"


def test_repeats_that_are_data_go_to_the_cpu():
    from torchtpu.config import config

    before, config.fallback = config.fallback, "allow"
    try:
        x = torch.arange(3.0, device="tpu")
        repeated = torch.repeat_interleave(x, torch.tensor([1, 0, 2], device="tpu"))
        assert repeated.tolist() == [0, 2, 2]
    finally:
        config.fallback = before
