"""Text as input: the embedded corpus or the user's file, split into documents and sentences."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from bench.options import UsageError

# More would only make the preparation longer: no run sees that much.
MAX_BYTES = 64 * 2**20
_SENTENCES_PER_DOCUMENT = 40
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n")
_DOCUMENT_END = re.compile(r"\n\s*\n\s*\n|\f")


@dataclass(frozen=True)
class Corpus:
    """documents: lists of sentences; sha256: of the text; source: for people."""

    documents: tuple[tuple[str, ...], ...]
    sha256: str
    source: str
    truncated: bool = False


def embedded() -> Corpus:
    """The language reference that every CPython ships (`pydoc_data.topics`), about 470 kB.

    It differs between Python versions, and so does the hash.
    """
    try:
        from pydoc_data import topics
    except ImportError:
        raise UsageError(
            "this Python lacks pydoc_data.topics, the default corpus; give your own text with "
            "workload.data.path=FILE"
        ) from None
    texts = [topics.topics[name] for name in sorted(topics.topics)]
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    documents = tuple(s for s in (split_sentences(t) for t in texts) if len(s) > 1)
    return Corpus(documents, digest, "pydoc_data.topics")


def from_file(name: str) -> Corpus:
    """The user's UTF-8 text. Raises UsageError saying what is wrong with it."""
    path, key = Path(name).expanduser(), "workload.data.path"
    if not path.exists():
        raise UsageError(f"{key}={name}: there is no such file")
    if not path.is_file():
        raise UsageError(f"{key}={name}: not a file; give one text file (UTF-8)")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{key}={name}: cannot be read ({error.strerror})") from None
    truncated, raw = len(raw) > MAX_BYTES, raw[:MAX_BYTES]
    if not raw.strip():
        raise UsageError(f"{key}={name}: the file is empty")
    try:
        # The cut may go through a character.
        text = raw.decode("utf-8", errors="ignore" if truncated else "strict")
    except UnicodeDecodeError as error:
        raise UsageError(f"{key}={name}: not UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        raise UsageError(f"{key}={name}: not a text file (it holds NUL characters)")
    documents = split_documents(text)
    if len(documents) < 2:
        raise UsageError(
            f"{key}={name}: too small; next-sentence prediction needs at least two documents of "
            "two sentences (documents are separated by two empty lines, or cut every "
            f"{_SENTENCES_PER_DOCUMENT} sentences)"
        )
    return Corpus(documents, hashlib.sha256(raw).hexdigest(), str(path), truncated)


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences and the like: cut after punctuation and at empty lines."""
    parts = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
    return tuple(part for part in parts if any(c.isalnum() for c in part))


def split_documents(text: str) -> tuple[tuple[str, ...], ...]:
    """Documents of at least two sentences: at double empty lines, else in even pieces."""
    documents = [split_sentences(part) for part in _DOCUMENT_END.split(text.replace("\r\n", "\n"))]
    if sum(len(d) > 1 for d in documents) < 2:
        sentences = split_sentences(text)
        size = min(_SENTENCES_PER_DOCUMENT, max(2, len(sentences) // 2))
        documents = [sentences[i : i + size] for i in range(0, len(sentences), size)]
    return tuple(d for d in documents if len(d) > 1)
