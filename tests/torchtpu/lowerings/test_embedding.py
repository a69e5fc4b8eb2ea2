"""Embeddings and bags of embeddings agree with the CPU, forward and backward."""

import pytest
import torch
from torch.nn import functional as F

V, D = 6, 3
INDICES = torch.tensor([[0, 2, 2], [5, 1, 2]])
FLAT = INDICES.reshape(-1)


def _weight(dtype=torch.float32):
    return torch.randn(V, D).to(dtype).requires_grad_()


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}], ids=str)
def test_embedding(same_as_cpu, options):
    same_as_cpu(lambda w: F.embedding(INDICES.to(w.device), w, **options), _weight())


def test_bfloat16_and_int32_indices(same_as_cpu):
    indices = INDICES.int()
    same_as_cpu(lambda w: F.embedding(indices.to(w.device), w), _weight(torch.bfloat16))


@pytest.mark.parametrize("indices", [torch.tensor(3), torch.zeros(0, dtype=torch.int64)])
def test_index_shapes(same_as_cpu, indices):
    same_as_cpu(lambda w: F.embedding(indices.to(w.device), w), _weight())


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_max_norm_changes_only_the_rows_used(same_as_cpu, norm_type):
    def run(weight):
        weight = weight.clone() * 2
        result = F.embedding(INDICES.to(weight.device), weight, None, 1.0, norm_type)
        return result, weight

    same_as_cpu(run, _weight().detach())


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("offsets", [[0, 2, 2], [0], [0, 0, 6]], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bag(same_as_cpu, mode, offsets, padding_idx):
    def run(weight):
        device = weight.device
        return F.embedding_bag(
            FLAT.to(device),
            weight,
            torch.tensor(offsets, device=device),
            mode=mode,
            padding_idx=padding_idx,
        )

    same_as_cpu(run, _weight())


def test_bag_with_weights_and_last_offset(same_as_cpu):
    def run(weight, sample_weights):
        offsets = torch.tensor([0, 2, 2, 6], device=weight.device)
        return F.embedding_bag(
            FLAT.to(weight.device),
            weight,
            offsets,
            mode="sum",
            per_sample_weights=sample_weights,
            include_last_offset=True,
        )

    same_as_cpu(run, _weight(), torch.rand(6, requires_grad=True))


def test_bag_of_two_dimensional_indices(same_as_cpu):
    same_as_cpu(lambda w: F.embedding_bag(INDICES.to(w.device), w, mode="mean"), _weight())


def test_index_out_of_range_gives_nan_and_no_gradient(no_fallback):
    weight = torch.ones(V, D, device="tpu", requires_grad=True)
    result = F.embedding(torch.tensor([1, V], device="tpu"), weight)
    assert result.isnan().any(1).tolist() == [False, True]
    (gradient,) = torch.autograd.grad(result.sum(), weight)
    assert gradient.sum(1).tolist() == [0, D, 0, 0, 0, 0]
