"""The tokenizer: the same vocabulary everywhere, kept whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.workloads import text_corpus, wordpiece

SENTENCES = ["the cat sat on the mat", "the bat sat on the hat", "a cat and a bat"]


def test_frequent_words_become_one_token():
    vocabulary = wordpiece.train(SENTENCES, 200)
    tokens = wordpiece.tokenizer(vocabulary).encode("The cat sat").tokens
    assert tokens == ["the", "cat", "sat"]
    assert tuple(vocabulary[:5]) == wordpiece.SPECIAL


def test_a_word_never_seen_is_spelled_out():
    tokens = wordpiece.tokenizer(wordpiece.train(SENTENCES, 200)).encode("chat").tokens
    assert "".join(t.removeprefix("##") for t in tokens) == "chat"
    assert wordpiece.UNK not in tokens


def test_characters_never_seen_are_unknown():
    assert wordpiece.tokenizer(wordpiece.train(SENTENCES, 200)).encode("q").tokens == ["[UNK]"]


@pytest.mark.parametrize("size", [6, 12, 20, 30])
def test_the_vocabulary_never_exceeds_its_size(size):
    vocabulary = wordpiece.train(SENTENCES, size)
    assert len(vocabulary) <= size
    assert len(set(vocabulary)) == len(vocabulary)


def test_merges_go_by_frequency_then_alphabet():
    # "ab" and "cd" are equally frequent: the alphabet decides.
    assert wordpiece.train(["ab cd ab cd"], 10)[-1:] == ["ab"]
    assert wordpiece.train(["ab cd ab cd cd"], 10)[-1:] == ["cd"]


def test_the_order_of_the_sentences_does_not_matter():
    assert wordpiece.train(SENTENCES, 60) == wordpiece.train(SENTENCES[::-1], 60)


def test_two_processes_train_the_same_vocabulary():
    code = (
        "from bench.workloads import text_corpus as t, wordpiece as w\n"
        "c = t.embedded(); s = [x for d in c.documents[:12] for x in d]\n"
        "print(w.vocabulary_hash(w.train(s, 30522)))"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_the_cache_gives_back_what_was_trained(tmp_path, monkeypatch):
    first = wordpiece.cached_vocabulary(SENTENCES, "ab" * 32, 60, tmp_path)
    monkeypatch.setattr(wordpiece, "train", lambda *_: pytest.fail("trained again"))
    assert wordpiece.cached_vocabulary(SENTENCES, "ab" * 32, 60, tmp_path) == first
    assert first[1] is None
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", [lambda t: t[: len(t) // 2], lambda t: "", lambda t: t + "x\n"])
def test_a_damaged_cache_is_made_anew(tmp_path, damage):
    expected, _ = wordpiece.cached_vocabulary(SENTENCES, "ab" * 32, 60, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))
    assert wordpiece.cached_vocabulary(SENTENCES, "ab" * 32, 60, tmp_path) == (expected, None)
    assert wordpiece._read(path, 60) == expected


def test_a_cache_that_cannot_be_written_is_only_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    vocabulary, warning = wordpiece.cached_vocabulary(SENTENCES, "ab" * 32, 60, blocked)
    assert vocabulary == wordpiece.train(SENTENCES, 60)
    assert "could not be kept" in warning


def test_the_embedded_corpus_has_its_size():
    corpus = text_corpus.embedded()
    assert len(corpus.sha256) == 64
    assert len(corpus.documents) > 50
    assert all(len(d) > 1 for d in corpus.documents)
    assert corpus == text_corpus.embedded()
