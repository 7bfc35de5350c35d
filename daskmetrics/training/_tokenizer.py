"""The tokenizer of a suite: a byte-level BPE fitted to its corpus, or one from a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

END = "<|endoftext|>"  # separates texts and pads: one special token, as in Pythia
END_ID = 0
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
)


def fit(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """A tokenizer of at most ``vocabulary`` tokens: all bytes, one special token and the most
    frequent merges.

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


def load(folder: str | Path) -> Tokenizer:
    """The tokenizer in a folder."""
    from tokenizers import Tokenizer

    path = Path(folder).expanduser() / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(
            f"No tokenizer in '{folder}': {path.name} cannot be read ({error})."
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def end_of(tokenizer: Tokenizer) -> int:
    """The id of the token that separates texts and pads: `END`, or the first other usual token."""
    for name in (END, "</s>", "<eos>", "[SEP]", "[PAD]", "<pad>"):
        number = tokenizer.token_to_id(name)
        if number is not None:
            return int(number)
    raise ConfigError(
        "The tokenizer has no token that separates texts, such as <|endoftext|>, </s> or [SEP]."
    )


def pack(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.int32]:
    """All texts as one array of token ids, shape (tokens,), with the end token after each text.

    >>> pack(fit(["ab"], vocabulary=300), ["ab", "ab"]).tolist().count(END_ID)
    2
    """
    end = end_of(tokenizer)
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    tokens = chain.from_iterable((*row.ids, end) for row in encoded)
    return np.array(list(tokens), dtype=np.int32)


def rows(
    tokenizer: Tokenizer, texts: Sequence[str], context: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Each text as a row of token ids (texts, context), padded with the end token, and the lengths
    (texts,).
    """
    end = end_of(tokenizer)
    ids = np.full((len(texts), context), end, dtype=np.int32)
    lengths = np.ones(len(texts), dtype=np.int32)  # a text without tokens becomes one end token
    for row, encoded in enumerate(tokenizer.encode_batch_fast(list(texts))):
        tokens = encoded.ids[:context]
        ids[row, : len(tokens)] = tokens
        lengths[row] = max(1, len(tokens))
    return ids, lengths


def copy(source: Path, folder: Path) -> None:
    """Copy the tokenizer's files that the source folder has."""
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def save(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, as `transformers.AutoTokenizer` reads
    them.
    """
    tokenizer.save(str(folder / "tokenizer.json"))
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        **special,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2) + "\n", encoding="utf-8"
    )


def key(folder: str) -> Key:
    """The content key of a tokenizer's files."""
    path = Path(folder).expanduser()
    if not (path / "tokenizer.json").is_file():
        raise ConfigError(f"tokenizer: '{folder}' holds no tokenizer.json.")
    return content_key(
        [(name, (path / name).read_text("utf-8")) for name in FILES if (path / name).is_file()]
    )
