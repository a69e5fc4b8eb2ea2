"""BERT-Large as configured, its small form, and what the harness relies on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from fakes import write_text
from torch._subclasses.fake_tensor import FakeTensorMode

from bench import config as configuration
from bench.options import UsageError
from bench.plan import make_plan
from bench.workloads.base import Setting


def make(*overrides, scale="smoke", accelerator=False, cache=None):
    config = configuration.load_config(
        ["workload=bert_large", "device=cpu", f"scale={scale}", *overrides]
    )
    return make_plan(config).make_workload(Setting(0, accelerator, cache))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bert")


@pytest.fixture(scope="module")
def small(folder):
    """A tiny one on a text of its own, prepared."""
    path = write_text(folder / "text.txt")
    workload = make(f"workload.data.path={path}", "workload.hidden_size=32", cache=folder)
    workload.prepare()
    return workload


def test_the_full_model_is_bert_large():
    workload = make(scale="full")
    with FakeTensorMode():
        model = workload.build()
    sizes = {
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "vocab_size": 30522,
    }
    for name, value in sizes.items():
        assert getattr(model.config, name) == value
    count = sum(p.numel() for p in model.parameters())
    assert count == workload._parameters() == 336_226_108
    assert model.training


def test_the_batch_size_is_that_of_the_machine_unless_given():
    assert make(scale="full").resolved()["batch_size"] == 2
    assert make(scale="full", accelerator=True).resolved()["batch_size"] == 32
    given = make("workload.batch_size=7", scale="full", accelerator=True)
    assert given.resolved()["batch_size"] == 7
    assert given.work_per_step() == {"sequences": 7, "tokens": 7 * 128}


def test_the_resolved_options_hold_no_scales():
    assert not [k for k in make().resolved() if k.startswith(("scales", "batch_size_"))]


def test_a_step_gives_a_detached_loss_and_moves_the_weights(small):
    model = small.build()
    optimizer = small.optimizer(model)
    before = model.bert.embeddings.word_embeddings.weight.detach().clone()
    loss = small.step(model, optimizer, small.batch(0))
    assert loss.shape == ()
    assert not loss.requires_grad
    # Untrained: all of the 30,522 tokens are equally likely, and so are both of the pairs.
    assert float(loss) == pytest.approx(np.log(30522) + np.log(2), rel=0.03)
    assert (model.bert.embeddings.word_embeddings.weight != before).any()
    decoder = model.cls.predictions.decoder.weight
    assert decoder is model.bert.embeddings.word_embeddings.weight


def test_the_same_seed_gives_the_same_weights(small):
    a, b = small.build().state_dict(), small.build().state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_parity_has_no_noise(small):
    variant, note = small.parity_variant(reduced=False)
    model = variant.build()
    batch = variant.batch(0)
    assert torch.equal(variant.loss(model, batch), variant.loss(model, batch))
    assert note == "dropout 0"
    assert torch.equal(batch["input_ids"], small.batch(0)["input_ids"])


def test_reduced_parity_says_what_it_left_out(folder):
    path = write_text(folder / "text.txt")
    workload = make(
        f"workload.data.path={path}", "workload.batch_size=16", scale="full", cache=folder
    )
    workload.prepare()
    variant, note = workload.parity_variant(reduced=True)
    assert note == "dropout 0, 4 of 24 layers, batch 2 of 16"
    assert variant.estimated_memory_bytes() < workload.estimated_memory_bytes()
    assert variant.batch(0)["input_ids"].shape == (2, 128)


def test_padding_does_not_change_the_loss(small):
    variant, _ = small.parity_variant(reduced=False)
    model = variant.build()
    # One sequence of a batch, the shortest of many.
    batches = [variant.batch(i) for i in range(40)]
    rows = [{k: v[n : n + 1] for k, v in b.items()} for b in batches for n in range(2)]
    batch = min(rows, key=lambda row: int(row["attention_mask"].sum()))
    assert int(batch["attention_mask"].sum()) < 60
    short = {k: v[:, :60].contiguous() if v.dim() == 2 else v for k, v in batch.items()}
    assert torch.allclose(variant.loss(model, batch), variant.loss(model, short), atol=1e-5)


def test_build_and_step_work_on_fake_tensors(small):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = small.build()
        optimizer = small.optimizer(model)
        batch = {k: torch.zeros(v.shape, dtype=v.dtype) for k, v in small.batch(0).items()}
        loss = small.step(model, optimizer, batch)
    assert loss.shape == ()


def test_biases_and_norms_do_not_decay(small):
    decayed, plain = small.optimizer(small.build()).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    assert all(p.dim() > 1 for p in decayed["params"])


def test_the_facts_name_corpus_and_vocabulary(small):
    facts = small.facts()
    assert facts["corpus"].endswith("text.txt")
    assert facts["corpus_tokens"] > 1000
    assert len(facts["vocabulary_sha256"]) == len(small.corpus_hash) == 64


def test_too_few_tokens_for_the_sequence_length(folder):
    path = write_text(folder / "tiny.txt", documents=2, sentences=3)
    workload = make(f"workload.data.path={path}", "workload.sequence_length=512", cache=folder)
    with pytest.raises(UsageError, match="too small; it has"):
        workload.prepare()


def test_the_memory_estimate_is_near_what_was_measured():
    # 2 x 128 tokens with AdamW: 6.7 GiB on the CPU.
    assert make(scale="full").estimated_memory_bytes() / 2**30 == pytest.approx(6.2, abs=1.0)


def test_options_are_read_only(small):
    with pytest.raises(AttributeError):
        small.options.layers = 1
    assert replace(small.options, layers=1).layers == 1
