"""Embedding look-ups and bags of embeddings, with their backward.

Indices out of range give NaN rows in the forward pass and are dropped in the backward pass.

Legend: V rows of the weight, D embedding size, I indices, B bags.
"""

from __future__ import annotations

import jax.numpy as jnp
import torch

from torchtpu.lowerings.common import upcast
from torchtpu.lowerings.norm import limit_norm, vector_norm
from torchtpu.lowerings.registry import register_lowering

_SUM, _MEAN, _MAX = 0, 1, 2  # the modes of embedding_bag


@register_lowering("aten::embedding")
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return jnp.take(weight, indices, axis=0)


def _scatter_rows(rows_ID, indices_I, num_weights: int):
    """Sum of the rows that go to each of `num_weights` rows; other indices are dropped."""
    result = jnp.zeros((num_weights, *rows_ID.shape[1:]), rows_ID.dtype)
    # A negative index would count from the end.
    indices_I = jnp.where(indices_I < 0, num_weights, indices_I)
    return result.at[indices_I].add(rows_ID, mode="drop")


def _frequencies(indices_I, num_weights: int, dtype):
    """How often the index at each place occurs among all."""
    counts = _scatter_rows(jnp.ones(indices_I.shape, jnp.int32), indices_I, num_weights)
    return jnp.take(counts, indices_I, mode="clip").astype(dtype)


def _row_gradients(rows_ID, indices_I, num_weights, padding_idx, scale_grad_by_freq):
    if scale_grad_by_freq:
        frequencies = _frequencies(indices_I, num_weights, rows_ID.dtype)
        rows_ID = rows_ID / frequencies[:, None]
    if padding_idx >= 0:
        indices_I = jnp.where(indices_I == padding_idx, num_weights, indices_I)
    return _scatter_rows(rows_ID, indices_I, num_weights)


@register_lowering("aten::embedding_dense_backward")
def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    rows_ID = upcast(grad_output).reshape(indices.size, grad_output.shape[-1])
    return _row_gradients(
        rows_ID, indices.reshape(-1), num_weights, padding_idx, scale_grad_by_freq
    )


@register_lowering("aten::embedding_renorm")
def embedding_renorm(self, indices, max_norm, norm_type):
    """The rows that are looked up, scaled down to a norm of at most `max_norm`."""
    indices_I = indices.reshape(-1)
    rows_ID = upcast(jnp.take(self, indices_I, axis=0))
    rows_ID = rows_ID * limit_norm(vector_norm(rows_ID, norm_type, (1,)), max_norm)
    return self.at[indices_I].set(rows_ID.astype(self.dtype), mode="drop")


# --- bags -----------------------------------------------------------------------------------------


def _bag_of_each_index(offsets_B, count: int, num_bags: int):
    """The bag that each of `count` indices belongs to."""
    starts = jnp.zeros(count + 1, jnp.int32).at[offsets_B[:num_bags]].add(1, mode="drop")
    return jnp.cumsum(starts[:count]) - 1


def _bag_meta(weight, indices, offsets, *_, mode=0, include_last_offset=False, **__):
    """Shapes of (result, bag of each index, bag sizes, index of each maximum)."""
    num_bags = offsets.shape[0] - int(include_last_offset)
    shape = (num_bags, weight.shape[1])
    integers = {"dtype": offsets.dtype, "device": weight.device}
    return (
        weight.new_empty(shape),
        torch.empty(indices.shape[0], **integers),
        torch.empty(num_bags, **integers),
        torch.empty(shape if mode == _MAX else (0,), **integers),
    )


@register_lowering("aten::_embedding_bag", "aten::_embedding_bag_forward_only", meta=_bag_meta)
def embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=_SUM,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=-1,
):
    count, num_bags = indices.shape[0], offsets.shape[0] - int(include_last_offset)
    bags_I = _bag_of_each_index(offsets, count, num_bags)
    counted_I = (indices != padding_idx) if padding_idx >= 0 else jnp.ones(count, jnp.bool_)
    target_I = jnp.where(counted_I, bags_I, num_bags)  # the padding index goes nowhere
    bag_size_B = _scatter_rows(jnp.ones(count, jnp.int32), target_I, num_bags)
    rows_ID = upcast(jnp.take(weight, indices, axis=0))
    maximum_indices = jnp.zeros(0, jnp.int32)
    if mode == _MAX:
        result_BD, maximum_indices = _bag_maximum(rows_ID, indices, target_I, bag_size_B)
    else:
        if per_sample_weights is not None:
            rows_ID = rows_ID * upcast(per_sample_weights)[:, None]
        result_BD = _scatter_rows(rows_ID, target_I, num_bags)
        if mode == _MEAN:
            result_BD = result_BD / jnp.maximum(bag_size_B, 1).astype(rows_ID.dtype)[:, None]
    return result_BD, bags_I, bag_size_B, maximum_indices


def _bag_maximum(rows_ID, indices_I, target_I, bag_size_B):
    """Largest value in each bag and dimension, and the first index that has it; 0 if empty."""
    num_bags, dims = bag_size_B.shape[0], rows_ID.shape[1]
    lowest = jnp.full((num_bags, dims), -jnp.inf, rows_ID.dtype)
    highest_BD = lowest.at[target_I].max(rows_ID, mode="drop")
    count = indices_I.shape[0]
    place_I1 = jnp.arange(count, dtype=jnp.int32)[:, None]
    reached_ID = rows_ID == jnp.take(highest_BD, target_I, axis=0, mode="clip")
    first_BD = jnp.full((num_bags, dims), count, jnp.int32)
    first_BD = first_BD.at[target_I].min(jnp.where(reached_ID, place_I1, count), mode="drop")
    empty_B1 = (bag_size_B == 0)[:, None]
    if count == 0:
        return jnp.zeros_like(lowest), jnp.zeros((num_bags, dims), jnp.int32)
    winners_BD = jnp.take(indices_I, first_BD, mode="clip")
    return jnp.where(empty_B1, 0, highest_BD), jnp.where(empty_B1, 0, winners_BD)


@register_lowering("aten::_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad,
    indices,
    offset2bag,
    bag_size,
    maximum_indices,
    num_weights,
    scale_grad_by_freq,
    mode,
    per_sample_weights,
    padding_idx=-1,
):
    grad_BD = upcast(grad)
    if mode == _MAX:
        # Empty bags have no maximum.
        target_BD = jnp.where((bag_size == 0)[:, None], num_weights, maximum_indices)
        columns_D = jnp.arange(grad.shape[1])
        result = jnp.zeros((num_weights, grad.shape[1]), grad_BD.dtype)
        return result.at[target_BD, columns_D[None, :]].add(grad_BD, mode="drop")
    if mode == _MEAN:
        grad_BD = grad_BD / jnp.maximum(bag_size, 1).astype(grad_BD.dtype)[:, None]
    rows_ID = jnp.take(grad_BD, offset2bag, axis=0)
    if per_sample_weights is not None:
        rows_ID = rows_ID * upcast(per_sample_weights)[:, None]
    return _row_gradients(rows_ID, indices, num_weights, padding_idx, scale_grad_by_freq)


@register_lowering(
    "aten::_embedding_bag_backward",
    meta=lambda grad, num_weights, **_: grad.new_empty(num_weights, grad.shape[1]),
)
def embedding_bag_backward(
    grad,
    indices,
    offsets,
    offset2bag,
    bag_size,
    maximum_indices,
    num_weights,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    padding_idx=-1,
):
    """Dense also where a sparse gradient is asked for: the device has no sparse tensors."""
    return embedding_bag_dense_backward(
        grad,
        indices,
        offset2bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@register_lowering("aten::_embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    grad, weight, indices, offsets, offset2bag, mode, padding_idx=-1
):
    rows_ID = upcast(jnp.take(grad, offset2bag, axis=0))
    products_I = jnp.sum(rows_ID * upcast(jnp.take(weight, indices, axis=0)), axis=1)
    return jnp.where(indices == padding_idx, 0, products_I) if padding_idx >= 0 else products_I
