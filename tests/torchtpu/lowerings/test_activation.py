"""Activations and softmax agree with the CPU, at their kinks, for NaN, and in their gradients."""

import pytest
import torch
from torch.nn import functional as F

NAN, INF = float("nan"), float("inf")
EDGES = [NAN, -INF, INF, -25.0, -6.0, -3.0, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0, 3.0, 6.0, 25.0]

ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "threshold": lambda x: F.threshold(x, 0.2, -7.0),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 1.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "softplus": lambda x: F.softplus(x, 2, 5),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "rrelu": lambda x: F.rrelu(x, training=False),
    "glu": F.glu,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_and_gradient(same_as_cpu, name):
    # mish of large numbers: the CPU's own gradient is NaN where exp overflows.
    values = [v for v in EDGES if not (name == "mish" and abs(v) == INF)]
    values = values[: len(values) // 2 * 2]
    same_as_cpu(ACTIVATIONS[name], torch.tensor(values, requires_grad=True))


@pytest.mark.parametrize("name", ["gelu", "silu", "elu", "softplus", "hardswish", "logsigmoid"])
def test_bfloat16(same_as_cpu, name):
    x = torch.linspace(-4, 4, 24).bfloat16().requires_grad_()
    same_as_cpu(ACTIVATIONS[name], x, tolerance={"rtol": 8e-3, "atol": 1e-6})


@pytest.mark.parametrize("name", ["relu", "gelu", "elu", "leaky_relu"])
@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_scalar_and_empty_tensors(same_as_cpu, name, shape):
    same_as_cpu(ACTIVATIONS[name], torch.full(shape, -0.3, requires_grad=True))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "hardtanh", "silu"])
def test_in_place_forms(same_as_cpu, name):
    x = torch.tensor([-1.0, 0.3, 2.0], requires_grad=True)
    same_as_cpu(lambda x: getattr(F, name)(x * 1, inplace=True), x)


@pytest.mark.parametrize("slopes", [1, 3])
def test_prelu(same_as_cpu, slopes):
    x = torch.linspace(-1, 1, 12).reshape(2, 3, 2).requires_grad_()
    same_as_cpu(F.prelu, x, torch.linspace(0.1, 0.3, slopes).requires_grad_())


def test_glu_along_another_dim(same_as_cpu):
    x = torch.linspace(-1, 1, 24).reshape(4, 3, 2).requires_grad_()
    same_as_cpu(lambda x: F.glu(x, 0), x)


def test_rrelu_draws_slopes_within_its_limits(no_fallback):
    x = torch.full((1000,), -1.0, device="tpu", requires_grad=True)
    y = F.rrelu(x, 0.1, 0.3, training=True)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    slopes = -y.detach().cpu()
    assert slopes.min() >= 0.1
    assert slopes.max() <= 0.3
    assert slopes.unique().numel() > 900
    torch.testing.assert_close(gradient.cpu(), slopes)


SOFTMAXES = [F.softmax, F.log_softmax, F.softmin]


@pytest.mark.parametrize("function", SOFTMAXES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(same_as_cpu, function, dim):
    x = torch.linspace(-3, 9, 24).reshape(2, 3, 4).requires_grad_()
    same_as_cpu(lambda x: function(x, dim=dim), x)


@pytest.mark.parametrize("function", SOFTMAXES[:2])
def test_softmax_edges(same_as_cpu, function):
    rows = torch.tensor([[-INF, 0.0, 1.0], [-INF, -INF, -INF], [INF, 0.0, 1.0], [NAN, 0.0, 1.0]])
    same_as_cpu(lambda x: function(x, dim=-1), rows)
    same_as_cpu(lambda x: function(x, dim=0), torch.tensor(3.0, requires_grad=True))
    same_as_cpu(lambda x: function(x, dim=0), torch.zeros(3, 0))
    same_as_cpu(lambda x: function(x, dim=1), torch.zeros(3, 0))


@pytest.mark.parametrize("function", SOFTMAXES[:2])
def test_softmax_of_bfloat16_sums_in_float32_and_rounds_once(no_fallback, function):
    x = (torch.arange(2000) % 7).bfloat16().reshape(2, 1000)
    # The CPU's own log_softmax rounds inside: the reference is its float32 result.
    expected = function(x.float(), dim=-1)
    torch.testing.assert_close(function(x.to("tpu"), dim=-1).cpu(), expected.bfloat16())
    in_float32 = function(x.to("tpu"), dim=-1, dtype=torch.float32)
    torch.testing.assert_close(in_float32.cpu(), expected)


def test_safe_softmax_of_masked_rows_is_zero(same_as_cpu):
    rows = torch.tensor([[-INF, 0.0, 1.0], [-INF, -INF, -INF]])
    same_as_cpu(lambda x: torch.ops.aten._safe_softmax(x, -1), rows)
