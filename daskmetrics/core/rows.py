"""The one reader of users' tables and lines of text: CSV, TSV, JSON Lines, Parquet and plain text.

Nothing is guessed: a text of a CSV file stays the text that was written, and what cannot be read is
an error with its line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import require_regular

_LONGEST_FIELD = 1 << 27
_ALWAYS_UNPACKED, _GREATEST_RATIO = 1 << 26, 100  # bytes, and times the size of a gzip file
_LONE_RETURN = re.compile(r"\r(?!\n)")
_NO_TEXT = (b"PK\x03\x04", b"\x1f\x8b", b"PAR1")  # how zip (also a workbook), gzip, Parquet begin
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such a text begins
_START = 64  # bytes, of which none is 0 in UTF-8 text
_RETURN = "\udc0d"  # stands for it: no UTF-8 text holds this character

PlacedRow = tuple[str, Mapping[str, Any]]
"""The name of a row in messages (``line 7``, ``row 7``), and its values by column."""


def read_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[PlacedRow]:
    """The rows of a table, whose suffix gives its format.

    Values of CSV and TSV files are texts; a CSV file without a comma in its header may have
    semicolons or tabs instead. Of Parquet files only the needed ``columns`` are read, if
    any are named. A `ConfigError` names the line if the file does not exist, has another format, is
    damaged or is not UTF-8, if a row has more or fewer values than the header has names, or a name
    stands twice.
    """
    require_regular(path)
    if not path.is_file():
        raise ConfigError(f"File '{path}' does not exist.")
    format = format_of(path)
    if format not in READERS:
        raise ConfigError(f"'{path}' has an unknown format ('{format}'). Use {', '.join(READERS)}.")
    return READERS[format](path, columns)


def check_names(path: Path, names: Collection[str], known: Iterable[str]) -> None:
    """Raise ConfigError if a column looks like a misspelt one.

    The default of the missing column would be taken instead.
    """
    missing = [name for name in known if name not in names]
    for name in names:
        if name in known:
            continue
        matches = get_close_matches(name.strip().lower(), missing, n=1, cutoff=0.8)
        if matches:
            raise ConfigError(
                f"'{path}' has a column '{name}' and no '{matches[0]}'. Rename it, or leave it out."
            )


def format_of(path: Path) -> str:
    """The suffix that gives the format of a file, in lower case.

    >>> format_of(Path("scores.CSV.gz")), format_of(Path("own.jsonl"))
    ('.csv', '.jsonl')
    """
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return Path(path.stem).suffix.lower()
    return suffix


def read_text(path: Path) -> str:
    """The whole text of a file, with ``\\n`` at the ends of lines.

    Errors are those of `read_rows`.
    """
    with _opened(path) as text:
        return text.read()


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty.

    Other separators of Unicode are part of a line.
    """
    return [line for line in read_text(path).split("\n") if line.strip()]


def read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The place and the value of each line that is not empty."""
    with _opened(path) as text:
        for number, line in enumerate(text, start=1):
            if line.strip():
                try:
                    yield f"line {number}", json.loads(line, object_pairs_hook=_object)
                except (ValueError, RecursionError) as error:
                    raise ConfigError(
                        f"'{path}', line {number} is not JSON: {error}. Write one value per line."
                    ) from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a name stands twice in {', '.join(name for name, _ in pairs)}")
    return values


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, unless made to fill the memory."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._content = gzip.GzipFile(fileobj=file)
        self._size = 0
        self._most = _ALWAYS_UNPACKED + _GREATEST_RATIO * path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._content.readinto(buffer)
        self._size += count
        if self._size > self._most:
            raise ConfigError(
                f"'{self._path}' unpacks to more than {_GREATEST_RATIO} times its size. If this is "
                "meant, unpack it with gunzip first."
            )
        return count


@contextmanager
def _opened(path: Path, newline: str | None = None) -> Iterator[IO[str]]:
    require_regular(path)
    try:
        with path.open("rb") as file:
            content = io.BufferedReader(
                _Unpacked(path, file) if path.suffix.lower() == ".gz" else file
            )
            start = content.peek(_START)[:_START]
            if start.startswith(_NO_TEXT):
                raise ConfigError(
                    f"'{path}' is no text, but an archive, a workbook or Parquet. Give it the suffix"
                    " of its format, or export it as CSV."
                )
            # of Latin letters each second byte is 0, of UTF-32 three of four
            has_wide_letters = 0 < start.count(0) <= 0.75 * len(start)
            if start.startswith(_UTF_16) or has_wide_letters:
                raise _encoding_error(path, "is UTF-16 text", "utf-16")
            with io.TextIOWrapper(content, encoding="utf-8-sig", newline=newline) as text:
                yield text
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text ({error.reason} at byte {error.start})"
        raise _encoding_error(path, problem, "latin1") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(
            f"'{path}' is damaged or incomplete: {error}. Compress the table again."
        ) from None
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}.") from None


def _encoding_error(path: Path, problem: str, encoding: str) -> ConfigError:
    return ConfigError(
        f"'{path}' {problem}. Convert it first, for instance with: iconv -f {encoding} -t utf-8"
        f" '{path}'"
    )


def _require_distinct(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ConfigError(f"'{path}' has a column twice in its header: {', '.join(names)}.")


def _csv(path: Path, columns: Sequence[str]) -> Iterator[PlacedRow]:
    csv.field_size_limit(_LONGEST_FIELD)
    with _opened(path, "") as text:
        header = text.readline()
    newline = "\n" if header.endswith("\n") else ""
    with _opened(path, newline) as text:
        lines: Iterable[str] = text
        if newline:
            # Python and pandas write a lone \r without quotes then: it is part of a text
            lines = (_LONE_RETURN.sub(_RETURN, line) for line in text)
        # a semicolon or tab where the header of a CSV file has no comma
        separator = "\t"
        if format_of(path) != ".tsv":
            separator = next((sign for sign in ",;\t" if sign in header), ",")
        reader = csv.reader(lines, delimiter=separator, strict=True)
        try:
            names = next(filter(None, reader), [])
            _require_distinct(path, names)
            for row in filter(None, reader):
                if len(row) != len(names):
                    raise ConfigError(
                        f"'{path}', line {reader.line_num} has {len(row)} fields, but the header "
                        f"has {len(names)}. Put texts with commas into double quotes."
                    )
                values = (value.replace(_RETURN, "\r") for value in row)
                yield f"line {reader.line_num}", dict(zip(names, values, strict=True))
        except csv.Error as error:
            raise ConfigError(
                f"'{path}', line {reader.line_num}: {error}. Is a closing double quote missing?"
            ) from None


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[PlacedRow]:
    for line, row in read_json_lines(path):
        if not isinstance(row, dict):
            raise ConfigError(
                f"'{path}', {line} is a {type(row).__name__}, not an object with named values."
            )
        yield line, row


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[PlacedRow]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError(f"'{path}' needs pyarrow: pip install 'daskmetrics[table]'") from None
    number = 0
    try:
        file = parquet.ParquetFile(path)
        if file.metadata.num_rows > max(1_000_000, _GREATEST_RATIO * path.stat().st_size):
            raise ConfigError(
                f"'{path}' has {file.metadata.num_rows:,} rows in {path.stat().st_size:,} bytes."
            )
        _require_distinct(path, file.schema_arrow.names)
        present = [column for column in columns if column in file.schema_arrow.names]
        for batch in file.iter_batches(columns=present or None):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
    except (ArrowException, OSError, UnicodeDecodeError) as error:  # a text need not be UTF-8
        raise ConfigError(f"'{path}' cannot be read as Parquet: {error}") from None


READERS: Mapping[str, Callable[[Path, Sequence[str]], Iterator[PlacedRow]]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}
"""Readers of a file, by its suffix."""
