"""``events.jsonl``: what happened in a watch, one JSON object a line, for other programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import room_for


class WatchLog:
    """A file of events that only grows; docs/watch.md lists the events and their fields.

    An event is one write of one line, so that a reader never sees half of one that was committed. An event that the
    file has already, but for its time, is not written again: a watch that was killed writes what is missing when it
    goes on.

    >>> import tempfile
    >>> with WatchLog(Path(tempfile.mkdtemp()) / "events.jsonl", clock=lambda: 12.0) as log:
    ...     log.write("measured", checkpoint="out@step8"), log.write("measured", checkpoint="out@step8")
    ...     log.path.read_text()
    (True, False)
    '{"event":"measured","at":12.0,"checkpoint":"out@step8"}\\n'
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        whole, _, torn = path.read_bytes().rpartition(b"\n")
        if torn:  # a killed writer leaves half a line
            os.ftruncate(self._file, len(whole) + bool(whole))
        events = [json.loads(line) for line in whole.splitlines()]
        self._known = set(map(_content, events))
        self.last: dict[str, dict[str, Any]] = {each["event"]: each for each in events}  # the latest of each kind

    def write(self, event: str, **fields: Any) -> bool:
        """Append an event with the present time, unless the file has it; returns whether it was new."""
        content = _content({"event": event, **fields})
        if content in self._known:
            return False
        line = json.dumps({"event": event, "at": round(self._clock(), 3), **fields}, separators=(",", ":"))
        with room_for(f"the events '{self.path}'"):
            os.write(self._file, f"{line}\n".encode())
        self._known.add(content)
        self.last[event] = {"event": event, **fields}
        return True

    def __enter__(self) -> WatchLog:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _content(event: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in event.items() if name != "at"}, sort_keys=True)
