"""Changes of a file's bytes: flipped, cut, repeated, spliced, and with values that readers seldom
expect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

TOKENS = (
    b"9" * 5000, b"1e400", b"-1e300", b"1e100000", b"4e-264", b"NaN", b"-Infinity", b"-1", b"0", b"%d" % 2**64,
    b"null", b"true", b"[]", b"{}", b'""', b'"x"', b"[1, null]", b'{"a": [{}]}', b"[" * 20_000, b'{"a":' * 20_000,
    b"\r", b"\n", b"\x0b", b"\x0c", "\x85".encode(), "\u2028".encode(), b"\xef\xbb\xbf", b"\x00", b"\xed\xa0\x80",
    b'"', b"'", b",", b":", b"|", b"=", b"\t", b"  ", b"- ", b"&a ", b"*a", b"..", b"~", b"\xff\xfe", b"\xe9",
    b"!!python/object:os.system", b"../../../etc/passwd", b"\x1b[2J", b"<script>", b"$(id)", b"A" * 100_000,
    b"1" + b"0" * 400, b"-%d" % 2**63, b'{"AutoModel": "a.B"}', b'"I8"', b"[2, 8]", b"=1+1", b'"@a"', b"+a",
    b"NA", b"1_0", b"1.0", b";", "\u200b".encode(), "e\u0301".encode(), b'{"a": 1}', b"9" * 400, b"Text", b"label",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.]*|true|false|null')

Change = Callable[[bytes, int, int], bytes]


def _flip(content: bytes, at: int, what: int) -> bytes:
    flipped = bytes(byte ^ (1 << what % 8) for byte in content[at : at + 1])
    return content[:at] + flipped + content[at + 1 :]


def _cut(content: bytes, at: int, what: int) -> bytes:
    return content[:at]


def _drop(content: bytes, at: int, what: int) -> bytes:
    return content[:at] + content[at + what % 64 :]


def _repeat(content: bytes, at: int, what: int) -> bytes:
    return content[: at + what % 256] + content[at:]


def _splice(content: bytes, at: int, what: int) -> bytes:
    start = what % max(1, len(content))
    return content[:at] + content[start : start + 64] + content[at:]


def _insert(content: bytes, at: int, what: int) -> bytes:
    return content[:at] + TOKENS[what % len(TOKENS)] + content[at:]


def _replace(pattern: re.Pattern[bytes]) -> Change:
    def change(content: bytes, at: int, what: int) -> bytes:
        found = pattern.search(content, at) or pattern.search(content)
        if not found:
            return content
        return content[: found.start()] + TOKENS[what % len(TOKENS)] + content[found.end() :]

    return change


def _swap_lines(content: bytes, at: int, what: int) -> bytes:
    lines = content.split(b"\n")
    one, other = at % len(lines), what % len(lines)
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


CHANGES: tuple[Change, ...] = (
    *(_flip, _cut, _drop, _repeat, _splice, _insert, _swap_lines),
    *(_replace(_NUMBER), _replace(_VALUE), _replace(_VALUE)),
)

Mutation = tuple[int, int, int]  # which change, where, with what
places = st.integers(0, 2**20)
mutations = st.lists(
    st.tuples(st.integers(0, len(CHANGES) - 1), places, places), min_size=1, max_size=4
)


def mutated(content: bytes, changes: Sequence[Mutation]) -> bytes:
    """The content after these changes, one after the other."""
    for which, at, what in changes:
        content = CHANGES[which](content, at % max(1, len(content)), what)
    return content
