"""How ``scaled_dot_product_attention`` comes to its fused operator on this device.

PyTorch asks a C++ table which of its attention backends to use, and a device written in Python cannot
enter that table. :func:`scaled_dot_product_attention` stands in for it: it makes that choice, and
everything it calls is an ordinary operator.
"""

from __future__ import annotations

import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    *,
    scale=None,
    enable_gqa=False,
):
    """Composite kernel of ``aten::scaled_dot_product_attention``, for the keys PrivateUse1 and
    AutogradPrivateUse1: one fused operator where it applies, else PyTorch's own composition."""
    if _can_fuse(query, key, value, attn_mask, enable_gqa):
        return aten._scaled_dot_product_fused_attention_overrideable(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )[0]
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(
            attn_mask.logical_not(), -math.inf
        )
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def nested_tensor_from_mask_left_aligned(t, mask) -> bool:
    """Kernel of ``aten::_nested_tensor_from_mask_left_aligned`` for the key PrivateUse1.

    nn.TransformerEncoder asks this before it packs a padded batch into a nested tensor, which the
    device does not have. "No" makes it go on with the padded batch and its mask.
    """
    return False


def _fusing_allowed() -> bool:
    """Whether ``torch.nn.attention.sdpa_kernel`` leaves any fused backend allowed."""
    return (
        torch._C._get_overrideable_sdp_enabled()
        or torch._C._get_flash_sdp_enabled()
        or torch._C._get_mem_efficient_sdp_enabled()
    )


def _can_fuse(query, key, value, attn_mask, enable_gqa: bool) -> bool:
    if not query.dim() == key.dim() == value.dim() == 4:
        return False
    if query.is_nested or not (query.is_floating_point() and _fusing_allowed()):
        return False
    if not query.dtype == key.dtype == value.dtype:
        return False
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not (enable_gqa and kv_heads and heads % kv_heads == 0):
        return False
    return (
        query.shape[0] == key.shape[0]
        and query.shape[3] == key.shape[3]
        and key.shape[:3] == value.shape[:3]
        and (attn_mask is None or attn_mask.dim() <= 4)
    )


def fused_attention_backward_with_graph(
    grad_out,
    query,
    key,
    value,
    attn_bias,
    grad_input_mask,
    *saved,
    scale=None,
):
    """Kernel of ``aten::_scaled_dot_product_fused_attention_overrideable_backward`` for the key
    AutogradPrivateUse1.

    The fused backward has no derivative of its own. Where one is asked for (``create_graph=True``),
    the gradients are computed through PyTorch's composition, which has.

    saved: out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
    philox_offset.
    """
    dropout_p, is_causal = saved[6:8]
    differentiable = [t for t in (grad_out, query, key, value, attn_bias) if t is not None]
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in differentiable)):
        with torch._C._AutoDispatchBelowAutograd():
            return aten._scaled_dot_product_fused_attention_overrideable_backward(
                grad_out, query, key, value, attn_bias, grad_input_mask, *saved, scale=scale
            )
    if dropout_p > 0:
        raise NotImplementedError(
            "scaled_dot_product_attention with dropout has no second derivative on the tpu device, "
            "because its dropout mask is not kept. Compute it under "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
        )

    inputs = (query, key, value, attn_bias)
    wanted = [t for t, is_wanted in zip(inputs, grad_input_mask, strict=True) if is_wanted]
    with sdpa_kernel(SDPBackend.MATH):
        again = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_bias,
            0.0,
            is_causal,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    gradients = iter(torch.autograd.grad(again, wanted, grad_out, create_graph=True))
    return tuple(next(gradients) if is_wanted else None for is_wanted in grad_input_mask)


COMPOSITES = {
    (aten.scaled_dot_product_attention.default, "PrivateUse1"): scaled_dot_product_attention,
    (
        aten.scaled_dot_product_attention.default,
        "AutogradPrivateUse1",
    ): scaled_dot_product_attention,
    (
        aten._scaled_dot_product_fused_attention_overrideable_backward.default,
        "AutogradPrivateUse1",
    ): fused_attention_backward_with_graph,
    (
        aten._nested_tensor_from_mask_left_aligned.default,
        "PrivateUse1",
    ): nested_tensor_from_mask_left_aligned,
}
