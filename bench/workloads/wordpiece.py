"""A WordPiece tokenizer trained on a corpus, the same on every machine.

The trainer is written out here because that of the `tokenizers` package breaks ties by the order
of a randomly seeded hash map: two processes get two vocabularies, and then two losses.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
# Changes with anything here that changes the vocabulary: a cached one of another version is stale.
TRAINER_VERSION = 1
_MAX_TRAINING_CHARACTERS = 4_000_000
_MAX_WORD = 100  # as in BERT: longer words are unknown


def tokenizer(vocabulary: list[str]) -> Tokenizer:
    """A lower-casing BERT tokenizer; the index in `vocabulary` is the token's id."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    ids = {token: i for i, token in enumerate(vocabulary)}
    made = Tokenizer(models.WordPiece(vocab=ids, unk_token=UNK, max_input_chars_per_word=_MAX_WORD))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def train(sentences: Iterable[str], size: int, min_count: int = 2) -> list[str]:
    """At most `size` tokens: the special ones, the characters, then merges by frequency.

    Ties go to the pair that comes first in the alphabet.
    """
    words = _count_words(sentences)
    spelled = [[c if i == 0 else PREFIX + c for i, c in enumerate(word)] for word in sorted(words)]
    counts = [words[word] for word in sorted(words)]
    characters = Counter()
    for pieces, count in zip(spelled, counts, strict=True):
        for piece in pieces:
            characters[piece] += count
    ranked = sorted(characters, key=lambda c: (-characters[c], c))
    vocabulary = [*SPECIAL, *sorted(ranked[: size - len(SPECIAL)])]
    vocabulary += _merges(spelled, counts, size - len(vocabulary), min_count, set(vocabulary))
    return vocabulary


def _count_words(sentences: Iterable[str]) -> Counter[str]:
    from tokenizers import normalizers, pre_tokenizers

    normalizer = normalizers.BertNormalizer(lowercase=True)
    splitter = pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    seen = 0
    for sentence in sentences:
        pieces = splitter.pre_tokenize_str(normalizer.normalize_str(sentence))
        words.update(word for word, _ in pieces if len(word) <= _MAX_WORD)
        seen += len(sentence)
        if seen > _MAX_TRAINING_CHARACTERS:
            break
    return words


def _merges(
    spelled: list[list[str]], counts: list[int], room: int, min_count: int, known: set[str]
) -> list[str]:
    """Up to `room` new tokens, by joining the most frequent neighbours again and again."""
    pair_counts: dict[tuple[str, str], int] = defaultdict(int)
    places: dict[tuple[str, str], set[int]] = defaultdict(set)
    for w, pieces in enumerate(spelled):
        for pair in pairwise(pieces):
            pair_counts[pair] += counts[w]
            places[pair].add(w)
    heap = [(-n, pair) for pair, n in pair_counts.items()]
    heapq.heapify(heap)
    merged: list[str] = []
    while heap and len(merged) < room:
        negative, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)
        if -negative != count:  # an old entry: the pair has become rarer since
            if count >= min_count:
                heapq.heappush(heap, (-count, pair))
            continue
        if count < min_count:
            break
        token = pair[0] + pair[1].removeprefix(PREFIX)
        if token not in known:  # two pairs can spell the same token
            known.add(token)
            merged.append(token)
        changed = set()
        for w in places.pop(pair):
            old, new = spelled[w], _joined(spelled[w], pair, token)
            if len(new) == len(old):
                continue
            for other in pairwise(old):
                pair_counts[other] -= counts[w]
            for other in pairwise(new):
                pair_counts[other] += counts[w]
                places[other].add(w)
                changed.add(other)
            spelled[w] = new
        pair_counts.pop(pair, None)
        for other in changed:
            heapq.heappush(heap, (-pair_counts[other], other))
    return merged


def _joined(pieces: list[str], pair: tuple[str, str], token: str) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(pieces):
        if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == pair:
            out.append(token)
            i += 2
        else:
            out.append(pieces[i])
            i += 1
    return out


def vocabulary_hash(vocabulary: list[str]) -> str:
    """SHA-256 of the tokens in their order."""
    return hashlib.sha256("\n".join(vocabulary).encode()).hexdigest()


def cached_vocabulary(
    sentences: Iterable[str], corpus_sha256: str, size: int, cache_dir: Path | None
) -> tuple[list[str], str | None]:
    """(vocabulary, warning): from the cache if it is there and whole, else trained and kept."""
    if cache_dir is None:
        return train(sentences, size), None
    path = cache_dir / f"wordpiece-{TRAINER_VERSION}-{size}-{corpus_sha256[:32]}.txt"
    cached = _read(path, size)
    if cached is not None:
        return cached, None
    vocabulary = train(sentences, size)
    try:
        _write(path, vocabulary)
    except OSError as error:
        return vocabulary, f"the tokenizer could not be kept in {cache_dir} ({error.strerror})"
    return vocabulary, None


def _read(path: Path, size: int) -> list[str] | None:
    """The vocabulary of a file whose first line is the hash of the rest; None if it is not."""
    try:
        digest, *vocabulary = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return None
    whole = digest == vocabulary_hash(vocabulary) and len(vocabulary) <= size
    return vocabulary if whole else None


def _write(path: Path, vocabulary: list[str]) -> None:
    """Atomically: several runs may start at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join([vocabulary_hash(vocabulary), *vocabulary]) + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
