"""JSON documents that are kept in the cache folder; without it all is read or asked for again."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from daskmetrics.core.files import atomic_write
from daskmetrics.core.serialization import parse


def recall(path: Path) -> dict[str, Any] | None:
    """The kept document; None without one, or if it is damaged."""
    with suppress(OSError, ValueError):
        kept = parse(path.read_bytes())
        return kept if isinstance(kept, dict) else None
    return None


def keep(path: Path, content: object) -> None:
    """Keep a document.

    One that cannot be written costs only time and requests.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(content))
