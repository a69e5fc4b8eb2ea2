"""Attention agrees with the CPU: masks, causality, scale, grouped queries, dropout, gradients of any
order, and the fused inference paths of the transformer modules."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

B, H, Q, K, D = 2, 4, 5, 7, 8
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
attention = F.scaled_dot_product_attention


def _attention_and_gradients(*operands, **options):
    """Contiguous: how results lie in memory depends on the backend, on the CPU too."""
    result = attention(*operands, **options)
    wanted = [t for t in operands if t is not None and t.requires_grad]
    weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape)
    gradients = torch.autograd.grad(result, wanted, weights.to(result)) if wanted else []
    return [t.detach().clone(memory_format=torch.contiguous_format) for t in (result, *gradients)]


def _operands(kv_heads=H, length=Q, kv_length=K, value_size=D, dtype=torch.float32):
    return [
        torch.randn(shape).to(dtype).requires_grad_()
        for shape in (
            (B, H, length, D),
            (B, kv_heads, kv_length, D),
            (B, kv_heads, kv_length, value_size),
        )
    ]


def _masks():
    allowed = torch.rand(B, 1, Q, K) > 0.4
    allowed[:, :, 0] = False  # a row that may attend to nothing
    padding = torch.ones(B, 1, 1, K, dtype=torch.bool)
    padding[0, ..., 4:] = False
    return {
        "bool": torch.rand(Q, K) > 0.3,
        "bool_fully_masked_row": allowed,
        "padding": padding,
        "float_fully_masked_row": torch.zeros(allowed.shape).masked_fill(~allowed, -math.inf),
        "bias_with_gradient": torch.randn(1, H, Q, K, requires_grad=True),
        "bias_broadcast": torch.randn(Q, 1, requires_grad=True),
    }


@pytest.mark.parametrize("name", [None, *_masks()])
def test_mask(same_as_cpu, name):
    mask = _masks()[name] if name else None
    same_as_cpu(_attention_and_gradients, *_operands(), mask, tolerance=TOLERANCE)


@pytest.mark.parametrize(("length", "kv_length"), [(5, 5), (5, 7), (7, 5)])
def test_causal(same_as_cpu, length, kv_length):
    operands = _operands(length=length, kv_length=kv_length)
    same_as_cpu(_attention_and_gradients, *operands, is_causal=True, tolerance=TOLERANCE)


@pytest.mark.parametrize("scale", [0.25, -0.5])
def test_scale(same_as_cpu, scale):
    same_as_cpu(_attention_and_gradients, *_operands(), scale=scale, tolerance=TOLERANCE)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries(same_as_cpu, kv_heads):
    operands = _operands(kv_heads=kv_heads)
    same_as_cpu(_attention_and_gradients, *operands, enable_gqa=True, tolerance=TOLERANCE)


def test_value_size_and_three_dimensions(same_as_cpu):
    same_as_cpu(_attention_and_gradients, *_operands(value_size=6), tolerance=TOLERANCE)
    operands = [t.detach()[0].requires_grad_() for t in _operands()]
    same_as_cpu(_attention_and_gradients, *operands, tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes(same_as_cpu, dtype):
    same_as_cpu(_attention_and_gradients, *_operands(dtype=dtype))


@pytest.mark.parametrize(("length", "kv_length"), [(0, 3), (3, 0)])
def test_empty_sequences(same_as_cpu, length, kv_length):
    operands = [t.detach() for t in _operands(length=length, kv_length=kv_length)]
    same_as_cpu(_attention_and_gradients, *operands)


def test_second_derivative(same_as_cpu):
    def gradient_of_gradient(q, k, v):
        # On the CPU only the composition has one.
        with sdpa_kernel([SDPBackend.MATH] if q.device.type == "cpu" else list(_FUSED)):
            gradients = torch.autograd.grad(
                attention(q, k, v).pow(2).sum(), (q, k, v), create_graph=True
            )
        return sum(g.square().sum() for g in gradients)

    same_as_cpu(gradient_of_gradient, *_operands(), tolerance={"rtol": 1e-3, "atol": 1e-3})


_FUSED = (SDPBackend.OVERRIDEABLE, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)


def _calls_of_fused_attention(function):
    from torchtpu.lowerings.registry import find_overload
    from torchtpu.runtime.executable_cache import cache

    overload = find_overload("aten::_scaled_dot_product_fused_attention_overrideable")
    before = set(cache.entries)
    function()
    return [k for k in cache.entries if k not in before and k[0].form.overload is overload]


def test_one_operator_unless_the_composition_is_asked_for(no_fallback):
    q, k, v = (t.detach().to("tpu") for t in _operands(length=3, kv_length=9))
    with sdpa_kernel(SDPBackend.MATH):
        assert not _calls_of_fused_attention(lambda: attention(q, k, v))
    assert len(_calls_of_fused_attention(lambda: attention(q, k, v))) == 1


def test_dropout_scales_what_it_keeps_and_its_gradient_uses_the_same_mask(no_fallback):
    q, k = (torch.zeros(1, 1, n, D, device="tpu") for n in (64, 128))
    # With equal scores and a unit value for each key, the result is the weights themselves.
    v = torch.eye(128, device="tpu")[None, None].requires_grad_()
    weights = attention(q, k, v, dropout_p=0.25)
    scaled = weights.detach().cpu()[0, 0] * 128
    kept = scaled > 0
    torch.testing.assert_close(scaled[kept], torch.full((int(kept.sum()),), 1 / 0.75))
    assert 0.72 < kept.float().mean() < 0.78
    (gradient,) = torch.autograd.grad(weights.sum(), v)
    expected = weights.detach().sum(2)[0, 0, :, None].expand(128, 128)
    torch.testing.assert_close(gradient.cpu()[0, 0], expected.cpu())
    again = attention(q, k, v, dropout_p=0.25)
    assert not torch.equal(again, weights)


def test_dropout_with_a_second_derivative_says_what_to_do(no_fallback):
    q, k, v = (t.detach().to("tpu").requires_grad_() for t in _operands())
    with pytest.raises(NotImplementedError, match="sdpa_kernel"):
        torch.autograd.grad(attention(q, k, v, dropout_p=0.5).sum(), q, create_graph=True)


PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)


def _module(module, **masks):
    def run(x):
        with torch.no_grad():
            own = module.to(x.device).eval()
            given = {name: mask.to(x.device) for name, mask in masks.items()}
            if isinstance(module, nn.MultiheadAttention):
                return own(x, x, x, **given)[0]
            return own(x, **given)

    return run


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(
    "masks",
    [{}, {"src_key_padding_mask": PADDING}, {"src_mask": CAUSAL}],
    ids=lambda masks: " ".join(masks) or "no mask",
)
def test_transformer_encoder_layer(same_as_cpu, norm_first, masks):
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    same_as_cpu(_module(layer, **masks), torch.randn(2, 5, 16), tolerance=TOLERANCE)


@pytest.mark.parametrize(
    "masks",
    [{}, {"key_padding_mask": PADDING}, {"attn_mask": CAUSAL}],
    ids=lambda masks: " ".join(masks) or "no mask",
)
def test_multihead_attention(same_as_cpu, masks):
    module = nn.MultiheadAttention(16, 4, batch_first=True)
    same_as_cpu(_module(module, **masks), torch.randn(2, 5, 16), tolerance=TOLERANCE)
