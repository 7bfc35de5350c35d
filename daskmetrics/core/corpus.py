"""The texts of every Python installation: read without importing modules, split in two, cut into
passages.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.keys import Key, content_key, seed_of
from daskmetrics.core.rows import read_lines
from daskmetrics.core.serialization import parse

# In every CPython from 3.11 on, with much prose, parsed in about a second. `topics` is the manual
# of pydoc.
PACKAGES = (
    "_pydecimal", "_pyio", "asyncio", "codecs", "collections", "concurrent", "configparser", "difflib", "doctest",
    "email", "http", "imaplib", "importlib", "inspect", "ipaddress", "json", "logging", "smtplib", "socket",
    "statistics", "threading", "typing", "unittest", "urllib", "wsgiref", "xml",
)  # fmt: skip
TOPICS = "topics"

PROMPT_WORDS = 32
_QUOTE = 8  # words
_HELD_OUT_IN = 3  # one document in three is held out


@dataclass(frozen=True)
class Document:
    """A section of Python's manual, docstrings, or words of these."""

    name: str  # its place, such as ``logging.handlers.SocketHandler`` or ``topics.while``
    text: str  # its paragraphs, one per line, with single spaces

    @property
    def package(self) -> str:
        """The first part of the name.

        >>> Document("xml.dom.minidom.Node", "...").package
        'xml'
        """
        return self.name.partition(".")[0]

    @property
    def is_held_out(self) -> bool:
        """Whether models of the demo do not train on it.

        It is decided by the text, so that copies stay together.
        """
        digest = hashlib.sha256(self.text.encode()).digest()
        return digest[0] % _HELD_OUT_IN == 0


@cache
def stdlib_documents() -> tuple[Document, ...]:
    """All distinct documents of this Python, in a fixed order.

    >>> documents = stdlib_documents()
    >>> documents[0].package, len(documents) > 800
    ('topics', True)
    """
    from pydoc_data.topics import topics

    documents = []
    for topic in sorted(topics):
        # not whole topics, because topics repeat sections of each other
        for index, section in enumerate(_sections(topics[topic])):
            documents.append(Document(f"{TOPICS}.{topic}.{index}", _paragraphs(section)))
    by_text: dict[str, Document] = {}
    for document in (*documents, *_docstrings()):
        if document.text:
            by_text.setdefault(document.text, document)
    return tuple(by_text.values())


@cache
def train() -> tuple[Document, ...]:
    """The documents on which models of the demo are trained."""
    return tuple(document for document in stdlib_documents() if not document.is_held_out)


@cache
def held_out() -> tuple[Document, ...]:
    """The other documents, for tasks and prompts.

    They have no paragraphs that share words with a training document.

    A paragraph is left out if it shares `_QUOTE` consecutive words: the manual and the docstrings
    often repeat each other.

    >>> {document.text for document in held_out()} & {document.text for document in train()}
    set()
    """
    trained = frozenset(chain.from_iterable(_windows(document.text) for document in train()))
    kept = []
    for document in stdlib_documents():
        if document.is_held_out:
            lines = (
                line for line in document.text.splitlines() if trained.isdisjoint(_windows(line))
            )
            if text := "\n".join(lines):
                kept.append(Document(document.name, text))
    return tuple(kept)


def passages(documents: Iterable[Document], words: int) -> tuple[Document, ...]:
    """Consecutive, disjoint runs of exactly `words` words.

    The rest of a document is dropped.

    >>> [passage.text for passage in passages([Document("os.walk", "Walk the tree,\\nyield its folders.")], 2)]
    ['Walk the', 'tree, yield', 'its folders.']
    """
    result = []
    for document in documents:
        all_words = document.text.split()
        for start in range(0, len(all_words) - words + 1, words):
            text = " ".join(all_words[start : start + words])
            result.append(Document(document.name, text))
    return tuple(result)


def prompts(source: str, count: int, seed: int) -> tuple[str, ...]:
    """The texts to measure, drawn at random and distinct.

    Equal seeds draw equal prompts.

    The source is ``stdlib`` for held-out passages of `PROMPT_WORDS` words, or a text file with one
    prompt per line. Raises ConfigError if the file is missing or is not text, or if there are too
    few distinct prompts.

    >>> len(set(prompts("stdlib", 8, seed=0)))
    8
    """
    if source == "stdlib":
        texts = (passage.text for passage in passages(held_out(), PROMPT_WORDS))
    elif Path(source).is_file():
        texts = (line.strip() for line in read_lines(Path(source)))
    else:
        raise ConfigError(
            f"No corpus file '{source}'. Give a text file with one prompt per line, or 'stdlib'."
        )
    return draw(texts, count, seed, source)


def draw(texts: Iterable[str], count: int, seed: int, source: str) -> tuple[str, ...]:
    """Draw distinct texts at random.

    It is a ConfigError, which names the source, if there are too few.
    """
    distinct = list(dict.fromkeys(text for text in texts if text))
    if len(distinct) < count:
        raise ConfigError(
            f"Corpus '{source}' has {len(distinct)} distinct prompts, but {count} are requested. "
            f"Set corpus.prompts to {len(distinct)} or less, or use a larger corpus."
        )
    return tuple(random.Random(seed_of("prompts", seed)).sample(distinct, count))


def digest(texts: Iterable[str]) -> Key:
    """The key of a corpus, in its order.

    >>> digest(["a", "b"]) == digest(("a", "b")) != digest(["b", "a"])
    True
    """
    return content_key("corpus", list(texts))


def _sections(text: str) -> Iterator[str]:
    """The parts of a reStructuredText between its headings."""
    lines = text.splitlines()
    headings = []
    for i, (title, line) in enumerate(pairwise(lines)):
        if len(line) == len(title) >= 3 and len(set(line)) == 1 and line[0] in "*=-~^":
            headings.append(i)
    starts = [0, *(i + 2 for i in headings)]
    ends = [*headings, len(lines)]
    for start, stop in zip(starts, ends, strict=True):
        yield "\n".join(lines[start:stop])


def _docstrings() -> list[Document]:
    """Those of the packages, cached while no file changes: parsing takes a second."""
    library = Path(sysconfig.get_path("stdlib"))
    paths: list[Path] = []
    for package in PACKAGES:
        paths += [*library.glob(f"{package}.py"), *sorted((library / package).rglob("*.py"))]
    statuses = [(str(path), path.stat()) for path in paths]
    files = [(path, status.st_size, status.st_mtime_ns) for path, status in statuses]
    reader = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    name = f"{content_key('docstrings', sys.version, reader, files)}.json"
    cached = cache_folder() / "stdlib" / name
    with suppress(OSError, ValueError, TypeError):
        key, rows = parse(cached.read_bytes())
        if key == content_key(rows):
            return [Document(*row) for row in rows]
    documents = list(chain.from_iterable(_documented(path, library) for path in paths))
    rows = [[document.name, document.text] for document in documents]
    with suppress(OSError):
        if cache_folder().is_dir():  # a dry run makes none
            cached.parent.mkdir(exist_ok=True)
            atomic_write(cached, json.dumps([content_key(rows), rows]))
    return documents


def _documented(path: Path, library: Path) -> Iterator[Document]:
    names = path.relative_to(library).with_suffix("").parts
    module = ".".join(names).removesuffix(".__init__")
    tree = ast.parse(path.read_bytes())
    yield Document(module, _paragraphs(ast.get_docstring(tree) or ""))
    for node in tree.body:
        if texts := list(_docs(node)):
            yield Document(f"{module}.{getattr(node, 'name', '')}", _paragraphs("\n\n".join(texts)))


def _docs(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield from filter(None, [ast.get_docstring(node)])
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            yield from _docs(child)


def _paragraphs(text: str) -> str:
    """Paragraphs as single lines.

    >>> _paragraphs("One paragraph,\\n  two lines.\\n\\n\\nAnother.")
    'One paragraph, two lines.\\nAnother.'
    """
    blocks = re.split(r"\n\s*\n", "\n".join(text.splitlines()))
    lines = [" ".join(block.split()) for block in blocks]
    return "\n".join(filter(None, lines))


def _windows(text: str) -> Iterator[str]:
    words = text.split()
    for start in range(len(words) - _QUOTE + 1):
        yield " ".join(words[start : start + _QUOTE])
