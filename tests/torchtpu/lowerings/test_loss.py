"""Losses and their gradients agree with the CPU for each reduction, weight and ignored class."""

import pytest
import torch
from torch.nn import functional as F

REDUCTIONS = ["none", "mean", "sum"]
X = torch.tensor([[0.3, -1.2, 2.0], [0.7, 0.1, -3.0]])
Y = torch.tensor([[0.1, 0.9, 1.5], [0.75, -0.2, 4.0]])

PAIRWISE = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.5),
    "smooth_l1_beta_0": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0),
    "huber": lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.8),
    "kl_div": lambda x, y, reduction: F.kl_div(x, y.sigmoid(), reduction=reduction),
    "poisson_nll": F.poisson_nll_loss,
    "soft_margin": lambda x, y, reduction: F.soft_margin_loss(x, y.sign(), reduction=reduction),
    "bce": lambda x, y, reduction: F.binary_cross_entropy(
        x.sigmoid(), y.sigmoid(), reduction=reduction
    ),
    "bce_with_logits": lambda x, y, reduction: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), reduction=reduction
    ),
    "hinge_embedding": lambda x, y, reduction: F.hinge_embedding_loss(
        x, y.sign(), reduction=reduction
    ),
}


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.filterwarnings("ignore:reduction")
def test_pairwise_loss(same_as_cpu, name, reduction):
    x = X.clone().requires_grad_()
    y = Y.clone().requires_grad_(name in ("mse", "l1"))
    same_as_cpu(lambda x, y: PAIRWISE[name](x, y, reduction=reduction), x, y)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_with_weights(same_as_cpu, reduction):
    x, target = X.clone().requires_grad_(), Y.sigmoid()
    weight = torch.tensor([0.5, 1.0, 2.0])
    same_as_cpu(
        lambda x, t, w: F.binary_cross_entropy(x.sigmoid(), t, w, reduction=reduction),
        x,
        target,
        weight,
    )
    same_as_cpu(
        lambda x, t, w: F.binary_cross_entropy_with_logits(
            x, t, w, reduction=reduction, pos_weight=w
        ),
        x,
        target,
        weight,
    )


def test_binary_cross_entropy_at_0_and_1_is_finite(same_as_cpu):
    x = torch.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    same_as_cpu(F.binary_cross_entropy, x, torch.tensor([0.0, 1.0, 1.0, 0.0]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 3, 2), (2, 3, 2, 2)])
def test_cross_entropy(same_as_cpu, reduction, weighted, shape):
    x = torch.linspace(-2, 3, torch.Size(shape).numel()).sin().reshape(shape).requires_grad_()
    target_shape = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = (torch.arange(torch.Size(target_shape).numel()) % 3).reshape(target_shape)
    weight = torch.tensor([0.5, 2.0, 1.0]) if weighted else None
    same_as_cpu(lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction), x, target, weight)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ignored_classes(same_as_cpu, reduction):
    x = torch.linspace(-2, 3, 12).reshape(4, 3).requires_grad_()
    target = torch.tensor([0, -100, 2, -100])
    same_as_cpu(lambda x, t: F.cross_entropy(x, t, reduction=reduction), x, target)
    same_as_cpu(
        lambda x, t: F.nll_loss(x, t, reduction=reduction, ignore_index=2),
        x,
        torch.tensor([0, 1, 2, 2]),
    )
    everything = torch.full((4,), -100)
    same_as_cpu(lambda x, t: F.cross_entropy(x, t, reduction=reduction), x, everything)


def test_cross_entropy_of_bfloat16(same_as_cpu):
    x = torch.linspace(-2, 3, 40).reshape(4, 10).bfloat16().requires_grad_()
    same_as_cpu(F.cross_entropy, x, torch.tensor([1, 9, 0, 3]))


def test_cross_entropy_with_label_smoothing_and_probabilities(same_as_cpu):
    x = torch.linspace(-2, 3, 12).reshape(4, 3).requires_grad_()
    same_as_cpu(
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), x, torch.tensor([0, 1, 2, 2])
    )
    same_as_cpu(F.cross_entropy, x, torch.linspace(0, 1, 12).reshape(4, 3))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin(same_as_cpu, reduction, p):
    x = torch.linspace(-2, 1, 12).cos().reshape(4, 3).requires_grad_()
    weight = torch.tensor([0.5, 2.0, 1.0])
    same_as_cpu(
        lambda x, t, w: F.multi_margin_loss(x, t, p, 0.7, w, reduction=reduction),
        x,
        torch.tensor([0, 2, 1, 1]),
        weight,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(same_as_cpu, reduction):
    x = torch.linspace(-2, 1, 8).cos().reshape(2, 4).requires_grad_()
    target = torch.tensor([[3, 0, -1, 1], [2, -1, 0, 0]])
    same_as_cpu(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x, target)


def test_embedding_losses(same_as_cpu):
    a, b = X.clone().requires_grad_(), Y.clone().requires_grad_()
    sign = torch.tensor([1.0, -1.0])
    same_as_cpu(lambda a, b, s: F.cosine_embedding_loss(a, b, s, margin=0.1), a, b, sign)
    same_as_cpu(lambda a, b, s: F.margin_ranking_loss(a[:, 0], b[:, 0], s), a, b, sign)
    same_as_cpu(lambda a, b: F.triplet_margin_loss(a, b, b.flip(0)), a, b)


def test_empty_batch(same_as_cpu):
    x = torch.zeros(0, 3, requires_grad=True)
    same_as_cpu(F.cross_entropy, x, torch.zeros(0, dtype=torch.int64))
    same_as_cpu(F.mse_loss, x, torch.zeros(0, 3))
