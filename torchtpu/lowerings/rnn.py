"""The pointwise parts of LSTM and GRU cells, which PyTorch fuses on this device.

The matrix products come before, as ``mm``; the four (LSTM) or three (GRU) gates lie side by side.

Legend: N batch, H hidden size; gates are (N, 4 H) or (N, 3 H).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.registry import register_lowering


def _sum_of(*terms):
    total = None
    for term in terms:
        if term is not None:
            total = upcast(term) if total is None else total + upcast(term)
    return total


def _lstm_meta(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    """PyTorch's own meta kernel fails where there is no bias."""
    return torch.empty_like(cx), torch.empty_like(cx), torch.empty_like(input_gates)


@register_lowering("aten::_thnn_fused_lstm_cell", meta=_lstm_meta)
def fused_lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    """New hidden state, new cell state, and the activated gates for the backward pass."""
    gates = _sum_of(input_gates, hidden_gates, input_bias, hidden_bias)
    input_gate, forget_gate, cell_gate, output_gate = jnp.split(gates, 4, axis=1)
    input_gate, forget_gate, output_gate = map(
        jax.nn.sigmoid, (input_gate, forget_gate, output_gate)
    )
    cell_gate = jnp.tanh(cell_gate)
    cy = forget_gate * upcast(cx) + input_gate * cell_gate
    workspace = jnp.concatenate([input_gate, forget_gate, cell_gate, output_gate], axis=1)
    return output_gate * jnp.tanh(cy), cy, workspace


@register_lowering("aten::_thnn_fused_lstm_cell_backward_impl")
def fused_lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    """Gradients of the gates, of the old cell state, and of the bias."""
    input_gate, forget_gate, cell_gate, output_gate = jnp.split(upcast(workspace), 4, axis=1)
    tanh_cy = jnp.tanh(upcast(cy))
    grad_hy = jnp.zeros_like(tanh_cy) if grad_hy is None else upcast(grad_hy)
    grad_cell = grad_hy * output_gate * (1 - tanh_cy * tanh_cy)
    if grad_cy is not None:
        grad_cell = grad_cell + upcast(grad_cy)
    grad_gates = jnp.concatenate(
        [
            grad_cell * cell_gate * input_gate * (1 - input_gate),
            grad_cell * upcast(cx) * forget_gate * (1 - forget_gate),
            grad_cell * input_gate * (1 - cell_gate * cell_gate),
            grad_hy * tanh_cy * output_gate * (1 - output_gate),
        ],
        axis=1,
    )
    grad_bias = jnp.sum(grad_gates, axis=0) if has_bias else None
    return grad_gates, grad_cell * forget_gate, grad_bias


@register_lowering("aten::_thnn_fused_gru_cell", meta="jax")
def fused_gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    """New hidden state, and what the backward pass needs, (N, 5 H)."""
    from_input = jnp.split(_sum_of(input_gates, input_bias), 3, axis=1)
    from_hidden = jnp.split(_sum_of(hidden_gates, hidden_bias), 3, axis=1)
    reset = jax.nn.sigmoid(from_input[0] + from_hidden[0])
    update = jax.nn.sigmoid(from_input[1] + from_hidden[1])
    new = jnp.tanh(from_input[2] + reset * from_hidden[2])
    old = upcast(hx)
    workspace = jnp.concatenate([reset, update, new, old, from_hidden[2]], axis=1)
    hy = new + update * (old - new)
    return hy.astype(hx.dtype), workspace.astype(hx.dtype)


@register_lowering("aten::_thnn_fused_gru_cell_backward", meta="jax")
def fused_gru_cell_backward(grad_hy, workspace, has_bias):
    """Gradients of the input gates, hidden gates, old hidden state, and the two biases."""
    reset, update, new, old, hidden_new = jnp.split(upcast(workspace), 5, axis=1)
    grad = upcast(grad_hy)
    grad_update = grad * (old - new) * update * (1 - update)
    grad_new = grad * (1 - update) * (1 - new * new)
    grad_reset = grad_new * hidden_new * reset * (1 - reset)
    grad_input = jnp.concatenate([grad_reset, grad_update, grad_new], axis=1)
    grad_hidden = jnp.concatenate([grad_reset, grad_update, grad_new * reset], axis=1)
    grad_biases = (
        [jnp.sum(g, axis=0).astype(grad_hy.dtype) for g in (grad_input, grad_hidden)]
        if has_bias
        else [None, None]
    )
    return (
        grad_input.astype(grad_hy.dtype),
        grad_hidden.astype(grad_hy.dtype),
        (grad * update).astype(grad_hy.dtype),
        *grad_biases,
    )
