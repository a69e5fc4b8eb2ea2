"""Batches for BERT's pretraining: sentence pairs and masked tokens, made on the CPU from a seed.

Every batch is a function of (seed, index) alone. Follows create_pretraining_data.py of
google-research/bert, with tokens masked one by one.

Shapes: B sequences a batch, S tokens a sequence. All int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

IGNORED = -100  # label of a token that is not to be predicted (torch's cross entropy)
IS_NEXT, IS_RANDOM = 0, 1


@dataclass(frozen=True)
class Specials:
    """Ids of the special tokens, and the number of ids in the vocabulary.

    Ids below `first_plain` are special: never masked, never drawn at random.
    """

    pad: int
    cls: int
    sep: int
    mask: int
    first_plain: int
    vocabulary: int


@dataclass(frozen=True)
class PretrainingBatches:
    """documents: per document at least two sentences of at least one token, as id arrays."""

    documents: Sequence[Sequence[np.ndarray]]
    specials: Specials
    batch_size: int
    sequence_length: int
    seed: int
    mask_share: float
    short_sequence_share: float

    def batch(self, index: int) -> dict[str, np.ndarray]:
        """input_ids, token_type_ids, attention_mask, labels: [B, S]; next_sentence_label: [B]."""
        rng = np.random.default_rng((self.seed, index))
        rows = [self._sequence(rng) for _ in range(self.batch_size)]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def _sequence(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        room = self.sequence_length - 3  # [CLS] a [SEP] b [SEP]
        if rng.random() < self.short_sequence_share:
            room = int(rng.integers(2, room + 1))
        a, b, label = self._pair(rng, room)
        s = self.specials
        ids = np.concatenate(([s.cls], a, [s.sep], b, [s.sep])).astype(np.int64)
        types = np.concatenate((np.zeros(len(a) + 2), np.ones(len(b) + 1))).astype(np.int64)
        masked, labels = self._mask(rng, ids)
        fill = self.sequence_length - len(ids)
        return {
            "input_ids": np.pad(masked, (0, fill), constant_values=s.pad),
            "token_type_ids": np.pad(types, (0, fill)),
            "attention_mask": np.pad(np.ones(len(ids), np.int64), (0, fill)),
            "labels": np.pad(labels, (0, fill), constant_values=IGNORED),
            "next_sentence_label": np.int64(label),
        }

    def _pair(self, rng: np.random.Generator, room: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Two segments of together at most `room` tokens; the second follows in half of the cases.

        The label is drawn first, so that it is 50:50 however short the documents are.
        """
        label = int(rng.integers(2))
        d = int(rng.integers(len(self.documents)))
        document = self.documents[d]
        start, end = _run(document, int(rng.integers(len(document) - 1)), room, at_least=2)
        cut = int(rng.integers(start + 1, end))
        a = np.concatenate(document[start:cut])
        if label == IS_NEXT:
            b = np.concatenate(document[cut:end])
        else:
            other = (d + 1 + int(rng.integers(len(self.documents) - 1))) % len(self.documents)
            document = self.documents[other]
            start, end = _run(document, int(rng.integers(len(document))), room - len(a), at_least=1)
            b = np.concatenate(document[start:end])
        return *_truncated(rng, a, b, room), label

    def _mask(self, rng: np.random.Generator, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ids with the chosen tokens hidden, labels). At least one token is chosen."""
        s = self.specials
        candidates = np.flatnonzero(ids >= s.first_plain)
        labels = np.full_like(ids, IGNORED)
        if not len(candidates):  # unknown words only
            return ids, labels
        # Rounded by chance, else short sequences would be masked more or less than mask_share.
        count = max(1, int(len(candidates) * self.mask_share + rng.random()))
        chosen = rng.choice(candidates, size=min(count, len(candidates)), replace=False)
        labels[chosen] = ids[chosen]
        draw = rng.random(len(chosen))
        random_ids = rng.integers(s.first_plain, s.vocabulary, size=len(chosen))
        hidden = ids.copy()
        hidden[chosen] = np.where(draw < 0.8, s.mask, np.where(draw < 0.9, random_ids, ids[chosen]))
        return hidden, labels


def _run(
    document: Sequence[np.ndarray], start: int, tokens: int, *, at_least: int
) -> tuple[int, int]:
    """(start, end) of sentences with so many tokens, if the document has them.

    Near the document's end the run starts earlier instead of being short.
    """
    end, found = start, 0
    while end < len(document) and (found < tokens or end < start + at_least):
        found += len(document[end])
        end += 1
    while start > 0 and found < tokens:
        start -= 1
        found += len(document[start])
    return start, end


def _truncated(
    rng: np.random.Generator, a: np.ndarray, b: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cut the longer one, somewhere at its ends, so that both fit; none gets empty."""
    # Both longer than half: each gets half. One shorter: the other gets what is left.
    keep_a = min(len(a), max(room - len(b), (room + 1) // 2))
    keep_b = min(len(b), room - keep_a)
    cut = []
    for segment, keep in ((a, keep_a), (b, keep_b)):
        front = int(rng.integers(len(segment) - keep + 1))
        cut.append(segment[front : front + keep])
    return cut[0], cut[1]
