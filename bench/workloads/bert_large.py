"""BERT-Large pretraining: masked-LM and next-sentence loss with AdamW, on real text.

The model is transformers' BertForPreTraining (Devlin et al. 2018: 24 layers, 1024 wide, 16 heads,
30,522 tokens). Shapes: B sequences a batch, S tokens a sequence, H heads, Q = K = S.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.options import UsageError, option
from bench.workloads import text_corpus, wordpiece
from bench.workloads.base import Batch, Setting, TrainingWorkload
from bench.workloads.mlm_batches import PretrainingBatches, Specials

if TYPE_CHECKING:
    import torch

MAX_POSITIONS = 512
# Parity runs on at most this many sequences: the reference on the CPU takes seconds for each.
PARITY_BATCH_SIZE = 2
PARITY_REDUCED_LAYERS = 4


@dataclass(frozen=True)
class DataOptions:
    path: str | None


@dataclass(frozen=True)
class BertOptions:
    """See conf/workload/bert_large.yaml."""

    batch_size: int | None = option(at_least=1)
    sequence_length: int = option(at_least=8, at_most=MAX_POSITIONS)
    layers: int = option(at_least=1)
    hidden_size: int = option(at_least=1)
    heads: int = option(at_least=1)
    intermediate_size: int = option(at_least=1)
    vocab_size: int = option(at_least=1000)
    dropout: float = option(at_least=0, at_most=0.99)
    learning_rate: float = option(above=0)
    weight_decay: float = option(at_least=0)
    mask_share: float = option(above=0, at_most=1)
    short_sequence_share: float = option(at_least=0, at_most=1)
    data: DataOptions
    batch_size_cpu: int = option(at_least=1)
    batch_size_accelerator: int = option(at_least=1)


class BertLarge(TrainingWorkload):
    """`prepare` makes the tokenizer and the token ids; `build` the model."""

    Options = BertOptions

    def __init__(self, options: BertOptions, setting: Setting) -> None:
        super().__init__(options, setting)
        if options.hidden_size % options.heads:
            raise UsageError(
                f"workload.hidden_size={options.hidden_size}: must be a multiple of "
                f"workload.heads={options.heads}"
            )
        self.batch_size = options.batch_size or (
            options.batch_size_accelerator if setting.is_accelerator else options.batch_size_cpu
        )
        self._data: PretrainingBatches | None = None
        self._corpus: text_corpus.Corpus | None = None
        self._vocabulary: list[str] = []

    def resolved(self) -> dict[str, Any]:
        values = asdict(self.options) | {"batch_size": self.batch_size}
        return {k: v for k, v in values.items() if not k.startswith("batch_size_")}

    def load(self) -> None:
        import transformers
        from transformers import BertForPreTraining  # noqa: F401  (imported lazily otherwise)

        transformers.logging.set_verbosity_error()

    # Input

    def prepare(self) -> None:
        o = self.options
        path = o.data.path
        corpus = text_corpus.from_file(path) if path else text_corpus.embedded()
        if corpus.truncated:
            self.warnings.append(f"only the first {text_corpus.MAX_BYTES} bytes of {path} are used")
        sentences = [s for document in corpus.documents for s in document]
        vocabulary, warning = wordpiece.cached_vocabulary(
            sentences, corpus.sha256, o.vocab_size, self.setting.cache_dir
        )
        if warning:
            self.warnings.append(warning)
        tokenizer = wordpiece.tokenizer(vocabulary)
        ids = iter(tokenizer.encode_batch(sentences, add_special_tokens=False))
        documents = [
            [np.array(e.ids, np.int64) for e in (next(ids) for _ in document) if e.ids]
            for document in corpus.documents
        ]
        documents = [d for d in documents if len(d) > 1]
        tokens = sum(len(s) for d in documents for s in d)
        if len(documents) < 2 or tokens < 4 * o.sequence_length:
            raise UsageError(
                f"workload.data.path={path}: too small; it has {tokens} tokens, and sequences of "
                f"{o.sequence_length} tokens need at least {4 * o.sequence_length}"
            )
        self._corpus, self._vocabulary, self._tokens = corpus, vocabulary, tokens
        place = {token: i for i, token in enumerate(wordpiece.SPECIAL)}
        specials = Specials(
            pad=place[wordpiece.PAD],
            cls=place[wordpiece.CLS],
            sep=place[wordpiece.SEP],
            mask=place[wordpiece.MASK],
            first_plain=len(wordpiece.SPECIAL),
            vocabulary=len(vocabulary),
        )
        self._data = PretrainingBatches(
            documents,
            specials,
            self.batch_size,
            o.sequence_length,
            self.setting.seed,
            o.mask_share,
            o.short_sequence_share,
        )

    @property
    def corpus_hash(self) -> str | None:
        return self._corpus.sha256 if self._corpus else None

    def facts(self) -> dict[str, Any]:
        return {
            "corpus": self._corpus.source if self._corpus else None,
            "corpus_tokens": self._tokens if self._corpus else None,
            "vocabulary_tokens": len(self._vocabulary),
            "vocabulary_sha256": wordpiece.vocabulary_hash(self._vocabulary),
            "parameters": self._parameters(),
        }

    def batch(self, index: int) -> Batch:
        import torch

        return {k: torch.from_numpy(v) for k, v in self._data.batch(index).items()}

    # The job

    def build(self) -> torch.nn.Module:
        import torch
        from transformers import BertConfig, BertForPreTraining

        o = self.options
        config = BertConfig(
            vocab_size=o.vocab_size,
            hidden_size=o.hidden_size,
            num_hidden_layers=o.layers,
            num_attention_heads=o.heads,
            intermediate_size=o.intermediate_size,
            hidden_dropout_prob=o.dropout,
            attention_probs_dropout_prob=o.dropout,
            max_position_embeddings=MAX_POSITIONS,
        )
        config._attn_implementation = "sdpa"
        torch.manual_seed(self.setting.seed)
        return BertForPreTraining(config).train()

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        # As in BERT's own training: no decay for biases and layer norms.
        decayed = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() <= 1]
        groups = [
            {"params": decayed, "weight_decay": self.options.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.options.learning_rate)

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        # A mask of four dimensions is used as it is; one of two would be looked at on the host
        # in every step, to see whether it is needed.
        mask_BK = batch["attention_mask"].bool()
        b, k = mask_BK.shape
        mask_BHQK = mask_BK[:, None, None, :].expand(b, 1, k, k)
        return model(**{**batch, "attention_mask": mask_BHQK}).loss

    def work_per_step(self) -> dict[str, float]:
        return {
            "sequences": self.batch_size,
            "tokens": self.batch_size * self.options.sequence_length,
        }

    def parity_variant(self, *, reduced: bool) -> tuple[BertLarge, str]:
        o = self.options
        layers = min(o.layers, PARITY_REDUCED_LAYERS) if reduced else o.layers
        batch_size = min(self.batch_size, PARITY_BATCH_SIZE)
        variant = BertLarge(
            replace(o, dropout=0.0, layers=layers, batch_size=batch_size), self.setting
        )
        variant._corpus, variant._vocabulary = self._corpus, self._vocabulary
        variant._tokens = self._tokens
        variant._data = replace(self._data, batch_size=batch_size)
        notes = ["dropout 0"]
        if layers != o.layers:
            notes.append(f"{layers} of {o.layers} layers")
        if batch_size != self.batch_size:
            notes.append(f"batch {batch_size} of {self.batch_size}")
        return variant, ", ".join(notes)

    def _parameters(self) -> int:
        """Of the model: embeddings, encoder layers, pooler and the two heads (tied decoder)."""
        o = self.options
        h, f = o.hidden_size, o.intermediate_size
        embeddings = (o.vocab_size + MAX_POSITIONS + 2) * h + 2 * h
        layer = 4 * (h * h + h) + 2 * h * f + f + h + 4 * h
        heads = 2 * (h * h + h) + 2 * h + o.vocab_size + 2 * h + 2
        return embeddings + o.layers * layer + heads

    def estimated_memory_bytes(self) -> int:
        o = self.options
        # Weights, gradients and two moments; per layer about 34 values for each token and unit
        # and 5 for each attention score (Korthikanti et al. 2022, in 2-byte units); the logits,
        # their softmax and their gradient.
        state = 16 * self._parameters()
        tokens = self.batch_size * o.sequence_length
        scores = 5 * o.heads * self.batch_size * o.sequence_length**2
        layers = o.layers * 2 * (34 * tokens * o.hidden_size + scores)
        return int(1.1 * (state + layers + 3 * 4 * tokens * o.vocab_size))
