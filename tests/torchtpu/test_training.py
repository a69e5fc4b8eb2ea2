"""Twenty training steps on tpu follow the CPU's loss curve, with no operator on the CPU."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
import models

STEPS = 20


def _bert_loss(model, device):
    ids = torch.randint(0, 100, (4, 16))
    labels = torch.where(torch.rand(4, 16) < 0.3, ids, -100)
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones(4, 16, dtype=torch.long).index_fill(1, torch.tensor([15]), 0),
        "token_type_ids": torch.arange(16).gt(8).long().expand(4, 16),
        "labels": labels,
        "next_sentence_label": torch.randint(0, 2, (4,)),
    }
    return model(**{k: v.to(device) for k, v in batch.items()}).loss


def _llama_loss(model, device):
    ids = torch.randint(0, 100, (2, 16)).to(device)
    return model(input_ids=ids, labels=ids).loss


def _resnet_loss(model, device):
    images, target = torch.randn(4, 3, 32, 32).to(device), torch.randint(0, 10, (4,)).to(device)
    return F.cross_entropy(model(images), target)


def _unet_loss(model, device):
    volume, target = torch.randn(2, 1, 8, 8, 8).to(device), torch.randint(0, 3, (2, 8, 8, 8))
    logits = model(volume)
    dice = 1 - 2 * (logits.softmax(1)[:, 1] * target.eq(1).to(device)).sum() / (logits.numel() / 3)
    return F.cross_entropy(logits, target.to(device)) + dice


CASES = {
    "bert": (models.bert, _bert_loss, lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "llama": (models.llama, _llama_loss, lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=False)),
    "resnet": (
        models.ResNet,
        _resnet_loss,
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    ),
    "unet3d": (models.UNet3d, _unet_loss, lambda p: torch.optim.Adam(p, lr=1e-3)),
}


def _train(model, loss_of, make_optimizer, device):
    model = model.to(device)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)  # the batch of this step, drawn on the CPU
        loss = loss_of(model, device)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu(), model


@pytest.mark.parametrize("name", CASES)
def test_loss_curve_follows_the_cpu(name, no_fallback):
    make_model, loss_of, make_optimizer = CASES[name]
    model = make_model()
    model.train()
    expected, cpu_model = _train(copy.deepcopy(model), loss_of, make_optimizer, "cpu")
    actual, tpu_model = _train(model, loss_of, make_optimizer, "tpu")
    assert expected[-1] != expected[0]
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
    for (key, ours), theirs in zip(
        tpu_model.state_dict().items(), cpu_model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            ours.cpu(), theirs, rtol=5e-2, atol=5e-3, msg=lambda m, key=key: f"{key}: {m}"
        )
