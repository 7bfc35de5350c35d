"""Keys and seeds that follow from content, on any machine."""

from __future__ import annotations

import hashlib
import json

Key = str


def content_key(*parts: object) -> Key:
    """A digest of JSON values, 32 hexadecimal digits.

    Equal values give equal keys, on any machine.

    Examples
    --------
    >>> content_key("pythia-14m", {"layer": 3}) == content_key("pythia-14m", {"layer": 3})
    True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def seed_of(*parts: object) -> int:
    """A 63-bit seed for JSON values.

    So each piece of work has its own random generator.
    """
    return int(content_key("seed", *parts)[:16], 16) >> 1
