"""Scaled dot-product attention as one operator, its backward, and the fused paths of nn.Transformer.

How PyTorch comes to choose the fused operator on this device is in ``composites/attention.py``.

Legend: B batch, H key/value heads, G query heads for each of them (1 without grouped-query attention),
Q query length, K key length, D head size, E head size of the values.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
from jax import lax

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.matmul import contract
from torchtpu.lowerings.norm import native_layer_norm
from torchtpu.lowerings.registry import register_lowering

aten = torch.ops.aten

# --- shapes and dtypes ----------------------------------------------------------------------------


def _forward_meta(query, key, value, *_, **__):
    batch, heads, length = query.shape[:3]
    number = query.new_empty((), dtype=torch.int64)
    # The result lies in memory as the query does: after this often comes a transpose back.
    order = sorted(range(4), key=lambda d: (-query.stride(d), d))
    shape = (batch, heads, length, value.shape[3])
    out = query.new_empty([shape[d] for d in order]).permute([order.index(d) for d in range(4)])
    logsumexp = query.new_empty(
        (batch, heads, length),
        dtype=torch.float64 if query.dtype == torch.float64 else torch.float32,
    )
    return out, logsumexp, None, None, length, key.shape[2], number, number, None


def _backward_meta(grad_out, query, key, value, attn_bias, grad_input_mask, *_, **__):
    inputs = (query, key, value, attn_bias)
    return tuple(
        torch.empty_like(t) if wanted and t is not None else None
        for t, wanted in zip(inputs, grad_input_mask, strict=True)
    )


# --- lowerings ------------------------------------------------------------------------------------


def _split_heads(query_BNQD, kv_heads: int):
    """(B, H G, Q, D) -> (B, H, G, Q, D): neighbouring query heads share a key/value head."""
    batch, heads, *rest = query_BNQD.shape
    return query_BNQD.reshape(batch, kv_heads, heads // max(kv_heads, 1), *rest)


def _scores(query_BHGQD, key_BHKD, bias, is_causal: bool, scale: float):
    """Scaled and masked scores (B, H, G, Q, K), in opmath."""
    scores = contract("bhgqd,bhkd->bhgqk", query_BHGQD, key_BHKD) * scale
    _, kv_heads, _, length, kv_length = scores.shape
    if bias is not None:
        bias = bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
        bias = bias[:, :, None] if bias.shape[1] == 1 else _split_heads(bias, kv_heads)
        if bias.dtype == jnp.bool_:
            scores = jnp.where(bias, scores, -jnp.inf)
        else:
            scores = scores + bias.astype(scores.dtype)
    if is_causal:
        rows = lax.broadcasted_iota(jnp.int32, (length, kv_length), 0)
        columns = lax.broadcasted_iota(jnp.int32, (length, kv_length), 1)
        scores = jnp.where(rows >= columns, scores, -jnp.inf)
    return scores


def _safe_softmax(scores):
    """Softmax over the last axis and log-sum-exp; a row of only -inf gives zeros and -inf."""
    highest = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    highest = jnp.where(highest == -jnp.inf, jnp.zeros_like(highest), highest)
    weights = jnp.exp(scores - highest)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    logsumexp = jnp.log(total) + highest
    return weights / jnp.where(total == 0, jnp.ones_like(total), total), logsumexp[..., 0]


def _dropout_factors(seed, shape, dropout_p: float, dtype):
    """0 where dropped, ``1 / (1 - p)`` where kept; the same again for the same seed."""
    if dropout_p >= 1:
        return jnp.zeros(shape, dtype)
    draws = jax.random.uniform(jax.random.key(seed), shape, jnp.float32)
    kept = draws >= jnp.float32(dropout_p)
    return jnp.where(kept, jnp.asarray(1 / (1 - dropout_p), dtype), jnp.zeros((), dtype))


def _default_scale(query, scale) -> float:
    if scale is not None:
        return scale
    return 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0


@register_lowering(
    "aten::_scaled_dot_product_fused_attention_overrideable",
    matmul_precision=True,
    random=True,
    meta=_forward_meta,
)
def fused_attention(
    query,
    key,
    value,
    attn_bias=None,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    scale=None,
    random_key=None,
):
    """`attn_bias` broadcasts to (B, H G, Q, K) and may be bool, True where attention is allowed.

    What PyTorch calls the Philox seed is the seed of the dropout mask, which the backward draws again.
    """
    query_BHGQD = _split_heads(query, key.shape[1])
    scores = _scores(query_BHGQD, key, attn_bias, is_causal, _default_scale(query, scale))
    weights, logsumexp = _safe_softmax(scores)
    seed = jnp.zeros((), jnp.int64)
    if dropout_p > 0:
        seed = lax.bitcast_convert_type(jax.random.bits(random_key, (), jnp.uint64), jnp.int64)
        weights = weights * _dropout_factors(seed, weights.shape, dropout_p, weights.dtype)
    out = contract("bhgqk,bhke->bhgqe", weights.astype(value.dtype), value)
    return (
        out.reshape(*query.shape[:3], value.shape[3]),
        logsumexp.reshape(query.shape[:3]),
        None,
        None,
        None,
        None,
        seed,
        jnp.zeros((), jnp.int64),
        None,
    )


@register_lowering(
    "aten::_scaled_dot_product_fused_attention_overrideable_backward",
    matmul_precision=True,
    meta=_backward_meta,
)
def fused_attention_backward(
    grad_out,
    query,
    key,
    value,
    attn_bias,
    grad_input_mask,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    philox_seed,
    philox_offset,
    scale=None,
):
    kv_heads, factor = key.shape[1], _default_scale(query, scale)
    query_BHGQD, grad_BHGQE, out_BHGQE, logsumexp_BHGQ = (
        _split_heads(x, kv_heads) for x in (query, grad_out, out, logsumexp)
    )
    scores = _scores(query_BHGQD, key, attn_bias, is_causal, factor)
    # A row that may attend to nothing has log-sum-exp -inf, and must have weights 0 here.
    logsumexp_BHGQ = jnp.where(logsumexp_BHGQ == -jnp.inf, jnp.inf, logsumexp_BHGQ)
    weights = jnp.exp(scores - logsumexp_BHGQ[..., None])
    grad_weights = contract("bhgqe,bhke->bhgqk", grad_BHGQE, value)
    kept_weights = weights
    if dropout_p > 0:
        factors = _dropout_factors(philox_seed, weights.shape, dropout_p, weights.dtype)
        kept_weights, grad_weights = weights * factors, grad_weights * factors
    # sum over K of weights * grad_weights, without another pass over the scores
    dot_BHGQ = jnp.sum(upcast(grad_BHGQE) * upcast(out_BHGQE), axis=-1)
    grad_scores = weights * (grad_weights - dot_BHGQ[..., None])
    narrow_grad_scores = grad_scores.astype(query.dtype)

    grad_query = contract("bhgqk,bhkd->bhgqd", narrow_grad_scores, key) * factor
    grad_key = contract("bhgqk,bhgqd->bhkd", narrow_grad_scores, query_BHGQD) * factor
    grad_value = contract("bhgqk,bhgqe->bhke", kept_weights.astype(value.dtype), grad_BHGQE)
    grad_bias = None
    if grad_input_mask[3] and attn_bias is not None:
        grad_bias = _sum_to_shape(
            grad_scores.reshape(*query.shape[:3], key.shape[2]), attn_bias.shape
        )
    return (
        grad_query.reshape(query.shape) if grad_input_mask[0] else None,
        grad_key if grad_input_mask[1] else None,
        grad_value if grad_input_mask[2] else None,
        grad_bias,
    )


def _sum_to_shape(x, shape):
    """The gradient of broadcasting an array of `shape` to that of `x`."""
    padded = (1,) * (x.ndim - len(shape)) + tuple(shape)
    axes = tuple(d for d in range(x.ndim) if padded[d] == 1 and x.shape[d] != 1)
    return jnp.sum(x, axis=axes, keepdims=True).reshape(shape)


# --- the inference fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer --------------

_ATTENTION_MASK, _PADDING_MASK = 0, 1  # mask_type; any other mask broadcasts to the scores


def _linear(x, weight, bias):
    """``x @ weight.T + bias``, rounded to the dtype of `x`."""
    return (contract("...k,mk->...m", x, weight) + upcast(bias)).astype(x.dtype)


def _multi_head(query, key, value, num_head, qkv_weight, qkv_bias, mask, mask_type):
    """Attention of (B, Q, H D) inputs before the output projection, and the weights (B, H, Q, K)."""
    heads = []
    for x, weight, bias in zip(
        (query, key, value), jnp.split(qkv_weight, 3), jnp.split(qkv_bias, 3), strict=True
    ):
        projected = _linear(x, weight, bias)
        batch, length, width = projected.shape
        heads.append(projected.reshape(batch, length, num_head, width // num_head).swapaxes(1, 2))
    query, key, value = heads
    allowed = None
    if mask is not None:
        allowed = mask == 0  # True, or -inf in a float mask, is masked out
        if mask_type == _PADDING_MASK:
            allowed = allowed[:, None, None, :]
    scores = _scores(query[:, :, None], key, allowed, False, _default_scale(query, None))
    weights, _ = _safe_softmax(scores[:, :, 0])
    weights = weights.astype(value.dtype)
    attended = contract("bhqk,bhke->bqhe", weights, value).astype(value.dtype)
    return attended.reshape(*attended.shape[:2], -1), weights


def _multi_head_meta(
    query, key, value, *_, num_head, need_weights=True, average_attn_weights=True, **__
):
    batch, length = query.shape[:2]
    weights = None
    if need_weights:
        heads = () if average_attn_weights else (num_head,)
        weights = query.new_empty((batch, *heads, length, key.shape[1]))
    return torch.empty_like(query, memory_format=torch.contiguous_format), weights


@register_lowering(
    "aten::_native_multi_head_attention", matmul_precision=True, meta=_multi_head_meta
)
def native_multi_head_attention(
    query,
    key,
    value,
    embed_dim,
    num_head,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    mask=None,
    need_weights=True,
    average_attn_weights=True,
    mask_type=None,
):
    attended, weights = _multi_head(
        query, key, value, num_head, qkv_weight, qkv_bias, mask, mask_type
    )
    if average_attn_weights:
        weights = jnp.mean(upcast(weights), axis=1)
    return _linear(attended, proj_weight, proj_bias), weights if need_weights else None


@register_lowering(
    "aten::_transformer_encoder_layer_fwd",
    matmul_precision=True,
    meta=lambda src, *_, **__: torch.empty_like(src, memory_format=torch.contiguous_format),
)
def transformer_encoder_layer(
    src,
    embed_dim,
    num_heads,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    use_gelu,
    norm_first,
    eps,
    norm_weight_1,
    norm_bias_1,
    norm_weight_2,
    norm_bias_2,
    ffn_weight_1,
    ffn_bias_1,
    ffn_weight_2,
    ffn_bias_2,
    mask=None,
    mask_type=None,
):
    def norm(x, weight, bias):
        return native_layer_norm(x, (embed_dim,), weight, bias, eps)[0].astype(x.dtype)

    def attend(x):
        attended, _ = _multi_head(x, x, x, num_heads, qkv_weight, qkv_bias, mask, mask_type)
        return _linear(attended, proj_weight, proj_bias)

    def feed_forward(x):
        hidden = upcast(_linear(x, ffn_weight_1, ffn_bias_1))
        hidden = jax.nn.gelu(hidden, approximate=False) if use_gelu else jnp.maximum(hidden, 0)
        return _linear(hidden.astype(x.dtype), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed_forward(x), norm_weight_2, norm_bias_2)
