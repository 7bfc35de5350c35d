"""Byte-level BPE, fitted to the corpus that the suite is trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

END = "<|endoftext|>"  # parts two texts, and pads: one special token, as in Pythia
END_ID = 0


def fit(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of at most `vocabulary` tokens: all bytes, one special token and the most frequent merges.

    Examples
    --------
    >>> tokenizer = fit(["to be or not to be"] * 4, vocabulary=300)
    >>> tokenizer.decode(tokenizer.encode("not to be, Zoë").ids)
    'not to be, Zoë'
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pack(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.int32]:
    """All texts as one row of token ids, shape (tokens,), with `END` after each.

    Examples
    --------
    >>> pack(fit(["ab"], vocabulary=300), ["ab", "ab"]).tolist().count(END_ID)
    2
    """
    rows = tokenizer.encode_batch_fast(list(texts))
    return np.array([token for row in rows for token in (*row.ids, END_ID)], dtype=np.int32)


def save(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, as `transformers.AutoTokenizer` reads them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
