"""The texts of a corpus, their tokens, and the windows of a step.

Every rank memory-maps the tokens.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config import Recipe
from daskmetrics.core import corpus as stdlib
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_folder, atomic_write, expanded, private
from daskmetrics.core.keys import Key, content_key, seed_of
from daskmetrics.core.rows import READERS, format_of, read_lines, read_rows

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SUFFIXES = (".txt", *READERS)
END = "<|endoftext|>"  # separates texts and pads: one special token, as in Pythia
END_ID = 0
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")

Tokens = NDArray[np.int32]  # (tokens,): all texts of a corpus


def files(source: str) -> tuple[Path, ...]:
    """The files of a corpus, at least one."""
    path = expanded(source)
    if path.is_file():
        return (path,)
    corpus_files = tuple(sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES))
    if not corpus_files:
        raise ConfigError(
            f"No corpus file '{path}', and no folder with files of {', '.join(SUFFIXES)}."
        )
    return corpus_files


def texts(recipe: Recipe) -> tuple[str, ...]:
    """The texts of a recipe's corpus, in the order of its files.

    An empty corpus is a `ConfigError`.
    """
    if recipe.corpus == "stdlib":
        return tuple(document.text for document in stdlib.train())
    column = recipe.text
    read: list[str] = []
    for path in files(recipe.corpus):
        if format_of(path) not in READERS:
            read += map(str.strip, read_lines(path))
            continue
        for line, row in read_rows(path, (column,)):
            if row.get(column) is None:
                raise ConfigError(
                    f"'{path}', {line} has no '{column}'. Its columns: {', '.join(map(str, row))}."
                )
            read.append(str(row[column]).strip())
    documents = tuple(filter(None, read))
    if not documents:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' is empty. Give texts, one per line or row, or 'stdlib'."
        )
    return documents


def key(recipe: Recipe) -> Key:
    """The content key of a recipe's corpus, wherever it is stored."""
    if recipe.corpus == "stdlib":
        return stdlib.digest(texts(recipe))
    digests = []
    for path in files(recipe.corpus):
        with path.open("rb") as file:
            begun = partial(hashlib.sha256, path.suffix.encode())
            digests.append(hashlib.file_digest(file, begun).hexdigest())
    return content_key("files", digests)


def fit_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer of at most ``vocabulary`` tokens.

    These are all bytes, one special token and the most frequent merges.

    >>> tokenizer = fit_tokenizer(["to be or not to be"] * 4, vocabulary=300)
    >>> tokenizer.decode(tokenizer.encode("not to be, Zoë").ids)
    'not to be, Zoë'
    """
    from tokenizers import ByteLevelBPETokenizer, Tokenizer

    fitted = ByteLevelBPETokenizer()
    fitted.train_from_iterator(
        texts, vocabulary, min_frequency=0, show_progress=False, special_tokens=[END]
    )
    return Tokenizer.from_str(fitted.to_str())


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_length: int) -> None:
    """Write `TOKENIZER`, as `transformers.AutoTokenizer` reads them."""
    from transformers import PreTrainedTokenizerFast

    special = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=max_length, **special
    ).save_pretrained(folder)


def tokenize(recipe: Recipe) -> tuple[Tokenizer, Tokens]:
    """The tokenizer that is fitted to a corpus, and its tokens.

    The end token follows each text. A corpus that is too short for the context is a `ConfigError`.
    """
    corpus = texts(recipe)
    tokenizer = fit_tokenizer(corpus, recipe.vocabulary)
    encoded = tokenizer.encode_batch_fast(list(corpus), add_special_tokens=False)
    ids = chain.from_iterable((*text.ids, END_ID) for text in encoded)
    tokens = np.fromiter(ids, dtype=np.int32)
    if len(tokens) <= recipe.context:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' has {len(tokens)} tokens, but a context of {recipe.context} "
            "needs more. Use a longer text or a smaller context."
        )
    return tokenizer, tokens


def write_corpus(recipe: Recipe, suite: Path) -> None:
    """Write tokens and tokenizer into ``corpus``, unless they are there."""
    if not (suite / "corpus").is_dir():
        tokenizer, tokens = tokenize(recipe)
        with atomic_folder(suite / "corpus") as partial:
            np.save(partial / "tokens.npy", tokens)
            save_tokenizer(tokenizer, partial, recipe.context)


def read(corpus: Path) -> Tokens:
    """The tokens in the folder of a corpus, memory-mapped."""
    tokens: Tokens = np.load(corpus / "tokens.npy", mmap_mode="r")
    return tokens


def effective(recipe: Recipe) -> int:
    """The effective batch: the number of sequences in a step.

    >>> effective(Recipe(batch=8, accumulate=2, ranks=4))
    64
    """
    return recipe.batch * recipe.accumulate * recipe.ranks


def epoch(recipe: Recipe, cache: Path) -> int:
    """The sequences of an epoch: the tokens divided by the context.

    A corpus is tokenized once to count it; the count is kept in the cache folder.
    """
    corpus_settings = (recipe.text, recipe.context, recipe.vocabulary)
    kept = cache / "epochs" / content_key("epoch", key(recipe), *corpus_settings)
    if not kept.is_file():
        _, tokens = tokenize(recipe)
        kept.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(kept, str(len(tokens) // recipe.context))
    return int(kept.read_text(encoding="utf-8"))


def with_steps(recipe: Recipe, cache: Path) -> Recipe:
    """The recipe with the steps of its epochs."""
    if recipe.epochs is None:
        return recipe
    sequences = recipe.epochs * epoch(recipe, cache)
    steps = max(1, math.ceil(sequences / effective(recipe)))
    return Recipe.model_validate({**recipe.model_dump(exclude={"epochs"}), "steps": steps})


def examples(recipe: Recipe, count: int, step: int) -> NDArray[np.int64]:
    """The windows of a step, drawn at random from 0 to ``count - 1``.

    The shape is (effective batch,).

    Step 0 gives the windows on which all revisions are evaluated.
    """
    generator = np.random.default_rng(seed_of("batch", recipe.seed, step))
    return generator.integers(0, count, size=effective(recipe))


@contextmanager
def staged(corpus: Path, stage: str | None, wait: Callable[[], object]) -> Iterator[Path]:
    """The folder to read a corpus from: itself, or its copy on this node.

    The first rank of each node copies; a copy that killed ranks left is used again.

    Parameters
    ----------
    corpus : Path
        A complete folder, which does not change.
    stage : str or None
        A folder, which may contain environment variables.
    wait : callable
        Waits for all ranks.

    Raises
    ------
    ConfigError
        If a variable is not set on this node, or the folder cannot hold the copy.

    Examples
    --------
    >>> with staged(Path("suites/a/corpus"), None, wait=lambda: None) as folder:
    ...     print(folder)
    suites/a/corpus
    """
    if stage is None:
        yield corpus
        return
    folder = expanded(os.path.expandvars(stage))
    written = (corpus / "tokens.npy").stat().st_mtime_ns
    key = content_key(os.getuid(), str(corpus.resolve()), written)
    copy = folder / f"daskmetrics-{key}"
    try:
        if "$" in str(folder):
            raise OSError("a variable is not set")
        if os.environ.get("LOCAL_RANK", "0") == "0":
            _copy(corpus, copy)
        wait()
        _copy(corpus, copy)  # jobs on one node may have folders of their own
    except OSError as error:
        raise ConfigError(
            f"stage: '{stage}' on {os.uname().nodename} cannot hold the copy ({error}). "
            "Name another folder."
        ) from None
    try:
        yield copy
    finally:  # other ranks keep what they have mapped
        shutil.rmtree(copy, ignore_errors=True)


def _copy(corpus: Path, copy: Path) -> None:
    """Copy a folder, completely or not at all."""
    if not copy.is_dir():
        with private(), atomic_folder(copy) as partial:
            for path in corpus.iterdir():
                shutil.copyfile(path, partial / path.name)
    if copy.stat().st_uid != os.getuid():
        raise PermissionError("it belongs to another user")
