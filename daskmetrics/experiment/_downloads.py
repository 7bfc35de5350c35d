"""Downloads of checkpoints beside a run: what its next units need, and what they took."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from daskmetrics.checkpoints.rolling import Downloads
from daskmetrics.core.costs import DOWNLOAD_RATE
from daskmetrics.core.events import measured
from daskmetrics.core.results import Download
from daskmetrics.core.text import size_text
from daskmetrics.execution import Record, Source, WorkUnit


class Expecting:
    """A source whose next units' checkpoints are downloaded while others run."""

    def __init__(self, source: Source, downloads: Downloads, records: Iterable[Record]) -> None:
        self.source = source
        self.downloads = downloads
        self._recorded = {record.key for record in records}
        self.tell: Callable[[Record], None] = source.tell

    def ask(self, n: int) -> Sequence[WorkUnit]:
        units = self.source.ask(n)
        specs = (
            unit.input.args[0] for unit in units if unit.input and unit.key not in self._recorded
        )
        self.downloads.expect(dict.fromkeys(spec.location for spec in specs))
        return units


def spared(records: Iterable[Record]) -> str | None:
    """What was downloaded for measuring, in words; None if nothing was."""
    downloads = _recorded(records)
    if not downloads:
        return None
    downloaded = sum(download.bytes for download in downloads)
    full_size = sum(download.whole for download in downloads)
    waited = sum(download.waited for download in downloads)
    size = size_text(downloaded)
    if downloaded < full_size:
        size += f" of {size_text(full_size)}: only the tensors that are needed"
    return f"Downloaded {size}. Workers waited {waited:,.0f} s for downloads."


def rate(records: Iterable[Record]) -> float:
    """Bytes per second of the recorded downloads, as a power of two so that equal networks decide
    alike.
    """
    downloads = _recorded(records)
    seconds = sum(download.seconds for download in downloads)
    if not seconds:
        return DOWNLOAD_RATE
    return 2.0 ** round(math.log2(sum(download.bytes for download in downloads) / seconds))


def _recorded(records: Iterable[Record]) -> list[Download]:
    """The downloads of measured checkpoints."""
    return [result.download for _, result in measured(records) if result.download]
