"""The download of one checkpoint: only what is needed, resumed after an interruption, tried again,
and checked.

Of a safetensors file only the header is read first, and then the bytes of the tensors that a layer
needs; they become a smaller safetensors file. A whole file is checked by the hash by which the hub
names it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints.content import digest_of
from daskmetrics.checkpoints.hub import HubUnreachable, client_errors
from daskmetrics.checkpoints.locations import Location
from daskmetrics.core.errors import DaskmetricsError, DataError
from daskmetrics.core.files import SUFFIX
from daskmetrics.core.retry import Fault, GiveUp, RetryPolicy

TRIES = RetryPolicy(exceptions=7, delay=1.0, longest_delay=60.0)
PATIENCE = 60.0  # seconds without a byte after which a connection counts as broken
LONGEST_WAIT = 900.0  # seconds: a hub that asks to wait longer is asked again
HEADER = 1 << 17  # bytes that are read for the header of a safetensors file; few are longer
LONGEST_HEADER = 100 << 20
GAP = 1 << 16  # bytes that are read and dropped rather than asking again
WORTH = 0.01  # share of a file that must be spared, else it is read whole and checked by its hash

_HEADS = ("lm_head.", "embed_out.")
_INPUTS = (
    "embed_in.weight",
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "shared.weight",
)
# dimensions of each
_BUFFERS = {
    "attention.bias": 4,
    "attn.bias": 4,
    "masked_bias": 0,
    "rotary_emb.inv_freq": 1,
}

OnWait = Callable[[str, float], None]


@dataclass
class Remote:
    """The files of a repository of the hub at one commit; failed requests are made again."""

    source: str
    commit: str
    on_wait: OnWait = lambda reason, seconds: None
    on_chunk: Callable[[], None] = lambda: None  # may raise to stop
    sleep: Callable[[float], None] = time.sleep
    serves_ranges: bool | None = field(default=None, init=False)  # None: no part was asked for yet

    def __str__(self) -> str:
        """The repository and the commit, in messages."""
        return f"{self.source} at {self.commit[:7]}"

    def read(self, name: str, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a file from ``start`` to ``end``; after a failure it goes on where it was.

        A `DataError` says that the hub refuses, or fails too often in a row.
        """
        failures = 0
        while start < end:
            before = start
            wait = 0.0
            try:
                with client_errors(), self._open(name, start, end) as response:
                    self._check(response, name)
                    for chunk in self._body(response, start):
                        self.on_chunk()
                        chunk = chunk[: end - start]
                        start += len(chunk)
                        yield chunk
                        if start >= end:
                            return
                reason = "the connection ended early"
            except _TransientError as error:
                reason, wait = str(error), error.wait
            except HubUnreachable as error:
                reason = str(error)
            if start > before:
                failures = 0
            failures += 1
            self._pause(name, reason, failures, wait)

    def _open(self, name: str, start: int, end: int) -> Any:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]

        # the token is read from its file or HF_TOKEN, and stays in the header: no message quotes a
        # request
        url = hf_hub_url(
            self.source, name, revision=self.commit, endpoint=os.environ.get("HF_ENDPOINT")
        )
        headers = {
            **build_hf_headers(),
            "Range": f"bytes={start}-{end - 1}",
            "Accept-Encoding": "identity",
        }
        return get_session().stream("GET", url, headers=headers, timeout=PATIENCE)

    def _check(self, response: Any, name: str) -> None:
        status = response.status_code
        if status in (200, 206):
            self.serves_ranges = status == 206
            return
        if status in (401, 403):
            raise DataError(
                f"The hub refuses {name} of {self} ({status}): accept its terms on the hub's page,"
                " and log in with 'hf auth login' or set HF_TOKEN where the downloads run."
            )
        if status in (408, 425, 429) or status >= 500:
            raise _TransientError(f"the hub answers {status}", _retry_after(response.headers))
        raise DataError(f"The hub has no {name} of {self} ({status}).")

    def _body(self, response: Any, start: int) -> Iterator[bytes]:
        """The bytes from ``start``: a server that serves no parts sends the file from its
        beginning.
        """
        skip = 0 if response.status_code == 206 else start
        # as they arrive: a buffer would be lost with the connection
        for chunk in response.iter_bytes():
            dropped = min(skip, len(chunk))
            skip -= dropped
            if len(chunk) > dropped:
                yield chunk[dropped:]

    def _pause(self, name: str, reason: str, failures: int, wait: float) -> None:
        decision = TRIES.after(Fault.EXCEPTION, failures)
        if isinstance(decision, GiveUp):
            raise DataError(
                f"{name} of {self} could not be downloaded: {failures} attempts in a row failed,"
                f" the last because {reason}. 'daskmetrics runs retry' and the same command try"
                " again."
            )
        seconds = min(LONGEST_WAIT, max(decision.delay, wait))
        self.on_wait(f"{name} of {self}: {reason}", seconds)
        self.sleep(seconds)


class DownloadStopped(DaskmetricsError):
    """The run ends: downloads stop where they are."""


class _TransientError(DaskmetricsError):
    def __init__(self, reason: str, wait: float) -> None:
        super().__init__(reason)
        self.wait = wait


def _retry_after(headers: Mapping[str, str]) -> float:
    with suppress(ValueError):
        return float(headers.get("Retry-After", 0))
    return 0.0


@dataclass(frozen=True)
class Part:
    """One file of a checkpoint as it will be on this machine."""

    name: str
    digest: str  # of the whole file, as the hub names it
    at_hub: int  # its bytes there
    header: bytes = b""  # of the smaller file, if only some tensors are needed
    pieces: tuple[tuple[int, int], ...] = ()  # the bytes of these, in the file at the hub

    @property
    def is_whole(self) -> bool:
        return not self.header

    @property
    def size(self) -> int:
        if self.is_whole:
            return self.at_hub
        return len(self.header) + sum(end - start for start, end in self.pieces)

    def content(self, remote: Remote, have: int) -> Iterator[bytes]:
        """What follows the first ``have`` bytes."""
        if self.is_whole:
            yield from remote.read(self.name, have, self.at_hub)
            return
        yield self.header[have:]
        for group in _groups(_after(self.pieces, max(0, have - len(self.header)))):
            at = group[0][0]
            for chunk in remote.read(self.name, at, group[-1][1]):
                for start, end in group:
                    yield chunk[max(0, start - at) : max(0, end - at)]
                at += len(chunk)


def _after(pieces: Iterable[tuple[int, int]], have: int) -> Iterator[tuple[int, int]]:
    """The pieces without their first ``have`` bytes.

    >>> list(_after([(0, 10), (20, 30)], 13))
    [(23, 30)]
    """
    for start, end in pieces:
        done = min(have, end - start)
        have -= done
        if start + done < end:
            yield start + done, end


def _groups(pieces: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Pieces that one request reads, with the bytes between them."""
    groups: list[list[tuple[int, int]]] = []
    for start, end in pieces:
        if groups and start - groups[-1][-1][1] <= GAP:
            groups[-1].append((start, end))
        else:
            groups.append([(start, end)])
    return groups


def parts_of(location: Location, remote: Remote) -> tuple[Part, ...]:
    """The files of a checkpoint, with only the tensors that are needed where the server serves
    parts of files.
    """
    rolling = location.rolling
    assert rolling is not None
    files = {name: Part(name, digest, size) for name, digest, size in rolling.files}
    if rolling.whole:
        return tuple(files.values())
    weights = [name for name in files if name.endswith(".safetensors")]
    headers = {name: _header(remote, files[name]) for name in weights}
    shapes: dict[str, Sequence[int]] = {}
    for tensors, _, _ in headers.values():
        shapes |= {name: tensor["shape"] for name, tensor in tensors.items()}
    for name, header in headers.items():
        files[name] = _smaller(files[name], *header, needed(shapes))
    return tuple(files.values())


def needed(shapes: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Those of a checkpoint's tensors that its layers need.

    Output embeddings are not, if there are input embeddings beside them, and buffers that attention
    computes itself.

    >>> sorted(needed({"embed_in.weight": [9, 2], "embed_out.weight": [9, 2], "0.attention.bias": [1, 1, 8, 8]}))
    ['embed_in.weight']
    """
    has_inputs = any(name.endswith(_INPUTS) for name in shapes)
    return frozenset(
        name for name, shape in shapes.items() if not _is_spare(name, shape, has_inputs)
    )


def _is_spare(name: str, shape: Sequence[int], has_inputs: bool) -> bool:
    is_buffer = any(
        name.endswith(suffix) and len(shape) == dims for suffix, dims in _BUFFERS.items()
    )
    return is_buffer or (has_inputs and name.startswith(_HEADS))


def _header(remote: Remote, part: Part) -> tuple[dict[str, Any], Any, int]:
    """The tensors of a safetensors file, what is said about the file, and where its data begin.

    No tensors if the file cannot be read so: it is then downloaded whole, and the loader says what
    is wrong with it.
    """
    text = b"".join(remote.read(part.name, 0, min(HEADER, part.at_hub)))
    length = int.from_bytes(text[:8], "little")
    if not remote.serves_ranges or length > min(LONGEST_HEADER, part.at_hub):
        return {}, None, 0
    if 8 + length > len(text):
        text += b"".join(remote.read(part.name, len(text), 8 + length))
    with suppress(ValueError, AttributeError):
        header = json.loads(text[8 : 8 + length])
        return header, header.pop("__metadata__", None), 8 + length
    return {}, None, 0


def _smaller(
    part: Part, tensors: Mapping[str, Any], metadata: Any, data: int, keep: frozenset[str]
) -> Part:
    """The file with only the tensors to keep; itself if that spares little."""
    kept = sorted(
        (tensor["data_offsets"], name) for name, tensor in tensors.items() if name in keep
    )
    pieces = tuple((data + start, data + end) for (start, end), _ in kept if end > start)
    if not tensors or sum(end - start for start, end in pieces) > (1 - WORTH) * part.at_hub:
        return part
    header = {}
    if metadata is not None:
        header["__metadata__"] = metadata
    at = 0
    for (start, end), name in kept:
        header[name] = {**tensors[name], "data_offsets": [at, at + end - start]}
        at += end - start
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return Part(part.name, part.digest, part.at_hub, len(text).to_bytes(8, "little") + text, pieces)


def fetch(part: Part, remote: Remote, folder: Path) -> None:
    """Write one file, going on with what an interrupted download left.

    A `DataError` says that it cannot be downloaded, or that the hub twice sends something else than
    it lists.
    """
    path = folder / part.name
    partial = path.with_name(path.name + SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        if path.is_file() and path.stat().st_size == part.size:
            return  # it has its name since it was checked
        have = 0
        if partial.is_file():
            have = partial.stat().st_size
        if have > part.size:
            partial.unlink()
            have = 0
        with partial.open("ab") as file:
            for chunk in part.content(remote, have):
                file.write(chunk)
        is_complete = partial.stat().st_size == part.size
        if is_complete and (not part.is_whole or digest_of(partial, part.digest) == part.digest):
            partial.replace(path)
            return
        partial.unlink()
    raise DataError(
        f"{part.name} of {remote} was downloaded twice, and its hash is not the one that the hub"
        " lists: something between here and the hub changes files. 'daskmetrics runs retry' tries"
        " again."
    )
