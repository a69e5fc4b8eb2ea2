"""Cutting text into documents and sentences."""

from __future__ import annotations

from bench.workloads import text_corpus


def test_documents_are_parted_by_two_empty_lines(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("One is here. Two is here.\n\nStill one.\n\n\nThree now. Four now.\n")
    corpus = text_corpus.from_file(str(path))
    assert corpus.documents == (
        ("One is here.", "Two is here.", "Still one."),
        ("Three now.", "Four now."),
    )
    assert corpus.source == str(path)


def test_text_without_double_empty_lines_is_cut_evenly():
    text = " ".join(f"Sentence {n}." for n in range(100))
    documents = text_corpus.split_documents(text)
    assert [len(d) for d in documents] == [40, 40, 20]


def test_lines_without_letters_are_no_sentences():
    assert text_corpus.split_sentences("Title\n\n*****\n\nText is here.") == (
        "Title",
        "Text is here.",
    )


def test_windows_line_ends_make_no_difference():
    text = "One a. Two a.\n\n\nThree a. Four a."
    crlf = text.replace("\n", "\r\n")
    assert text_corpus.split_documents(crlf) == text_corpus.split_documents(text)


def test_only_the_beginning_of_a_large_file_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(text_corpus, "MAX_BYTES", 1001)
    path = tmp_path / "t.txt"
    path.write_text("Ä sentence of words. " * 100, encoding="utf-8")
    corpus = text_corpus.from_file(str(path))
    assert corpus.truncated
    assert sum(len(s.encode()) + 1 for d in corpus.documents for s in d) <= 1003
