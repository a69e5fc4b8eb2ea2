"""Sentence pairs and masks: shapes, shares, and the same batch for the same seed and index."""

from __future__ import annotations

import numpy as np
import pytest

from bench.workloads.mlm_batches import IGNORED, IS_NEXT, IS_RANDOM, PretrainingBatches, Specials

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4, first_plain=5, vocabulary=30000)
PER_DOCUMENT = 1000


def make(**changes):
    """Documents whose ids name the document and the place in it."""
    documents = []
    for d in range(20):
        ids = np.arange(600, dtype=np.int64) + 10 + PER_DOCUMENT * d
        documents.append([ids[i : i + 12] for i in range(0, 600, 12)])
    values = {
        "batch_size": 4,
        "sequence_length": 64,
        "seed": 1,
        "mask_share": 0.15,
        "short_sequence_share": 0.1,
    } | changes
    return PretrainingBatches(documents, SPECIALS, **values)


@pytest.fixture(scope="module")
def many():
    """400 batches of 4, stacked: [1600, S]."""
    data = make()
    batches = [data.batch(i) for i in range(400)]
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def original(many):
    return np.where(many["labels"] == IGNORED, many["input_ids"], many["labels"])


def test_shapes_are_fixed(many):
    for name in ("input_ids", "token_type_ids", "attention_mask", "labels"):
        assert many[name].shape == (1600, 64)
        assert many[name].dtype == np.int64
    assert many["next_sentence_label"].shape == (1600,)


def test_a_batch_depends_on_seed_and_index_only():
    a, b = make(), make()
    b.batch(0)
    for name, value in a.batch(7).items():
        np.testing.assert_array_equal(value, b.batch(7)[name])
    assert (a.batch(7)["input_ids"] != a.batch(8)["input_ids"]).any()
    assert (a.batch(7)["input_ids"] != make(seed=2).batch(7)["input_ids"]).any()


def test_the_share_of_masked_tokens(many):
    plain = (original(many) >= SPECIALS.first_plain) & (many["attention_mask"] == 1)
    share = (many["labels"] != IGNORED).sum() / plain.sum()
    assert share == pytest.approx(0.15, abs=0.005)


def test_masked_tokens_are_hidden_80_10_10(many):
    chosen = many["labels"] != IGNORED
    ids, labels = many["input_ids"][chosen], many["labels"][chosen]
    hidden, kept = ids == SPECIALS.mask, ids == labels
    n = chosen.sum()
    assert n > 10000
    assert hidden.sum() / n == pytest.approx(0.8, abs=0.015)
    assert kept.sum() / n == pytest.approx(0.1, abs=0.012)
    assert (~hidden & ~kept).sum() / n == pytest.approx(0.1, abs=0.012)


def test_special_tokens_and_padding_are_never_predicted(many):
    chosen = many["labels"] != IGNORED
    assert (many["labels"][chosen] >= SPECIALS.first_plain).all()
    assert (many["attention_mask"][chosen] == 1).all()
    assert chosen.any(axis=1).all()


def test_half_of_the_pairs_follow_each_other(many):
    assert (many["next_sentence_label"] == IS_NEXT).mean() == pytest.approx(0.5, abs=0.04)


def test_pairs_are_what_their_label_says(many):
    ids, types, seen = original(many), many["token_type_ids"], many["attention_mask"] == 1
    for row in range(0, 1600, 7):
        plain = seen[row] & (ids[row] >= SPECIALS.first_plain)
        a, b = ids[row][plain & (types[row] == 0)], ids[row][plain & (types[row] == 1)]
        assert len(a) >= 1
        assert len(b) >= 1
        same = a[0] // PER_DOCUMENT == b[0] // PER_DOCUMENT
        assert same == (many["next_sentence_label"][row] == IS_NEXT)
        if same:
            assert b[0] > a[-1]
        assert many["next_sentence_label"][row] in (IS_NEXT, IS_RANDOM)


def test_the_layout_is_cls_a_sep_b_sep(many):
    ids, lengths = many["input_ids"], many["attention_mask"].sum(1)
    assert (ids[:, 0] == SPECIALS.cls).all()
    assert (ids[np.arange(1600), lengths - 1] == SPECIALS.sep).all()
    assert ((ids == SPECIALS.sep).sum(1) == 2).all()
    assert (ids[many["attention_mask"] == 0] == SPECIALS.pad).all()
    assert (many["token_type_ids"][many["attention_mask"] == 0] == 0).all()


def test_most_sequences_are_full_and_some_are_short(many):
    full = (many["attention_mask"].sum(1) == 64).mean()
    assert 0.8 < full < 0.98


def test_documents_of_two_short_sentences_do():
    documents = [[np.array([10 + d]), np.array([20 + d])] for d in range(2)]
    data = PretrainingBatches(documents, SPECIALS, 8, 16, 0, 0.15, 0.5)
    for index in range(50):
        batch = data.batch(index)
        assert batch["input_ids"].shape == (8, 16)
        assert ((batch["labels"] != IGNORED).sum(1) >= 1).all()
