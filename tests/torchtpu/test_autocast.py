"""``torch.autocast("tpu")``: dtypes as PyTorch documents them for CUDA, gradients in float32."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64


@pytest.fixture(autouse=True)
def _on_the_device_only(no_fallback):
    """No operator under autocast goes to the CPU."""


def _rand(*shape, dtype=F32):
    return torch.rand(*shape).to("tpu", dtype)


LOWER = {
    "linear": lambda d: F.linear(_rand(2, 4, dtype=d), _rand(3, 4), _rand(3)),
    "matmul": lambda d: _rand(2, 4, dtype=d) @ _rand(4, 3),
    "bmm": lambda d: torch.bmm(_rand(2, 3, 4, dtype=d), _rand(2, 4, 3)),
    "addmm": lambda d: torch.addmm(_rand(3), _rand(2, 4, dtype=d), _rand(4, 3)),
    "baddbmm": lambda d: torch.baddbmm(_rand(2, 3, 3), _rand(2, 3, 4, dtype=d), _rand(2, 4, 3)),
    "einsum": lambda d: torch.einsum("ij,jk->ik", _rand(2, 4, dtype=d), _rand(4, 3)),
    "conv1d": lambda d: F.conv1d(_rand(1, 2, 8, dtype=d), _rand(3, 2, 3)),
    "conv2d": lambda d: F.conv2d(_rand(1, 2, 5, 5, dtype=d), _rand(3, 2, 3, 3)),
    "conv3d": lambda d: F.conv3d(_rand(1, 2, 4, 4, 4, dtype=d), _rand(3, 2, 3, 3, 3)),
    "conv_transpose2d": lambda d: F.conv_transpose2d(_rand(1, 2, 4, 4, dtype=d), _rand(2, 3, 2, 2)),
    "prelu": lambda d: F.prelu(_rand(2, 3, dtype=d), _rand(3)),
    "attention": lambda d: F.scaled_dot_product_attention(
        *(_rand(1, 2, 4, 8, dtype=d) for _ in range(3))
    ),
}

HIGHER = {
    "softmax": lambda d: _rand(2, 4, dtype=d).softmax(-1),
    "log_softmax": lambda d: F.log_softmax(_rand(2, 4, dtype=d), -1),
    "layer_norm": lambda d: F.layer_norm(_rand(2, 4, dtype=d), (4,), _rand(4), _rand(4)),
    "group_norm": lambda d: F.group_norm(_rand(2, 4, 3, dtype=d), 2),
    "exp": lambda d: _rand(4, dtype=d).exp(),
    "log": lambda d: _rand(4, dtype=d).log(),
    "rsqrt": lambda d: _rand(4, dtype=d).rsqrt(),
    "pow": lambda d: _rand(4, dtype=d) ** 2,
    "sum": lambda d: _rand(2, 4, dtype=d).sum(),
    "sum over a dimension": lambda d: _rand(2, 4, dtype=d).sum(1, keepdim=True),
    "prod": lambda d: _rand(2, 4, dtype=d).prod(),
    "cumsum": lambda d: _rand(2, 4, dtype=d).cumsum(0),
    "norm": lambda d: torch.linalg.vector_norm(_rand(4, dtype=d)),
    "cross_entropy": lambda d: F.cross_entropy(
        _rand(2, 4, dtype=d), torch.tensor([1, 3], device="tpu")
    ),
    "mse_loss": lambda d: F.mse_loss(_rand(4, dtype=d), _rand(4, dtype=d)),
    "bce_with_logits": lambda d: F.binary_cross_entropy_with_logits(
        _rand(4, dtype=d), _rand(4, dtype=d)
    ),
    "cosine_similarity": lambda d: F.cosine_similarity(_rand(2, 4, dtype=d), _rand(2, 4), 1),
    "softplus": lambda d: F.softplus(_rand(4, dtype=d)),
    "interpolate": lambda d: F.interpolate(
        _rand(1, 1, 2, 2, dtype=d), scale_factor=2, mode="bilinear"
    ),
}

UNCHANGED = {
    "relu": lambda d: _rand(4, dtype=d).relu(),
    "gelu": lambda d: F.gelu(_rand(4, dtype=d)),
    "add": lambda d: _rand(4, dtype=d) + 1,
    "mul": lambda d: _rand(4, dtype=d) * _rand(4, dtype=d),
    "max_pool2d": lambda d: F.max_pool2d(_rand(1, 1, 4, 4, dtype=d), 2),
    "mean": lambda d: _rand(4, dtype=d).mean(),
    "dropout": lambda d: F.dropout(_rand(8, dtype=d)),
}


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", LOWER)
def test_products_and_convolutions_run_in_the_autocast_dtype(name, dtype):
    with torch.autocast("tpu", dtype=BF16):
        assert LOWER[name](dtype).dtype == BF16


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", HIGHER)
def test_sensitive_operators_run_in_float32(name, dtype):
    with torch.autocast("tpu", dtype=BF16):
        assert HIGHER[name](dtype).dtype == F32


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", UNCHANGED)
def test_other_operators_keep_their_dtype(name, dtype):
    with torch.autocast("tpu", dtype=BF16):
        assert UNCHANGED[name](dtype).dtype == dtype


def test_the_default_dtype_is_bfloat16_and_float16_can_be_asked_for():
    x = _rand(2, 2)
    with torch.autocast("tpu"):
        assert torch.is_autocast_enabled("tpu")
        assert torch.get_autocast_dtype("tpu") == (x @ x).dtype
    with torch.autocast("tpu", dtype=torch.float16):
        assert (x @ x).dtype == torch.float16
    assert not torch.is_autocast_enabled("tpu")
    assert (x @ x).dtype == F32


def test_the_widest_dtype_wins_where_several_meet():
    wide, narrow = _rand(3), _rand(3, dtype=BF16)
    with torch.autocast("tpu", dtype=BF16):
        assert torch.cat([wide, narrow]).dtype == F32
        assert torch.stack([narrow, narrow]).dtype == BF16
        assert torch.addcmul(wide, narrow, narrow).dtype == F32
        assert torch.dot(wide, narrow).dtype == F32


def test_float64_and_integers_are_left_alone():
    x = _rand(2, 2, dtype=F64)
    with torch.autocast("tpu", dtype=BF16):
        assert (x @ x).dtype == F64
        assert x.softmax(0).dtype == F64
        assert torch.tensor([1, 2], device="tpu").sum().dtype == torch.int64


def test_a_dtype_that_the_caller_names_is_kept():
    x = _rand(2, 4, dtype=BF16)
    with torch.autocast("tpu", dtype=BF16):
        assert x.softmax(-1, dtype=F64).dtype == F64
        assert x.sum(dtype=BF16).dtype == BF16


def test_autocast_can_be_switched_off_inside():
    x = _rand(2, 2)
    with torch.autocast("tpu", dtype=BF16):
        assert (x @ x).dtype == BF16
        with torch.autocast("tpu", enabled=False):
            assert (x @ x).dtype == F32
            with torch.autocast("tpu", dtype=torch.float16):
                assert (x @ x).dtype == torch.float16
            assert (x @ x).dtype == F32
        assert (x @ x).dtype == BF16


def test_autocast_of_another_device_changes_nothing():
    x = _rand(2, 2)
    with torch.autocast("cpu", dtype=BF16):
        assert (x @ x).dtype == F32
    with torch.autocast("tpu", dtype=BF16):
        assert (torch.rand(2, 2) @ torch.rand(2, 2)).dtype == F32


def test_binary_cross_entropy_is_refused():
    with torch.autocast("tpu", dtype=BF16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(_rand(4), _rand(4))


def test_gradients_and_parameters_stay_float32():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)).to("tpu")
    target = torch.tensor([0, 1, 2, 3], device="tpu")
    inputs = _rand(4, 8)
    with torch.autocast("tpu", dtype=BF16):
        output = model(inputs)
        assert output.dtype == BF16
        loss = F.cross_entropy(output, target)
    assert loss.dtype == F32
    loss.backward()
    for parameter in model.parameters():
        assert parameter.dtype == F32
        assert parameter.grad.dtype == F32
        assert parameter.grad.abs().sum().item() > 0


def test_autocast_values_are_those_of_the_cast_inputs():
    x, w = _rand(4, 8), _rand(3, 8)
    with torch.autocast("tpu", dtype=BF16):
        actual = F.linear(x, w)
    expected = F.linear(x.to(BF16), w.to(BF16))
    assert torch.equal(actual, expected)


def test_gradients_are_close_to_those_of_float32():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))
    model = model.to("tpu")
    inputs = _rand(2, 3, 4, 4)
    gradients = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("tpu", dtype=BF16, enabled=enabled):
            loss = model(inputs).float().square().mean()
        loss.backward()
        gradients.append([p.grad.cpu() for p in model.parameters()])
    for full, half in zip(*gradients, strict=True):
        torch.testing.assert_close(half, full, rtol=0.05, atol=0.05 * full.abs().max().item())


def test_a_custom_function_casts_its_inputs():
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=F32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    x = _rand(3, dtype=BF16).requires_grad_()
    with torch.autocast("tpu", dtype=BF16):
        result = Square.apply(x)
    assert result.dtype == F32
    result.sum().backward()
    assert x.grad.dtype == BF16
