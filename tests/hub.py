"""A local server that speaks the part of the model hub's protocol that lists and serves files,
faults included.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

File = bytes | Path
Repositories = Mapping[str, Mapping[str, Mapping[str, File]]]  # files by repository and branch
LFS = (".safetensors", ".bin")  # stored there, and named by SHA-256; others by git's own hash
BLOCK = 1 << 16  # bytes that are sent at once


@dataclass
class Fault:
    """What goes wrong with requests whose ``METHOD path`` contains a text, the next ``times``
    times.
    """

    match: str
    times: int = 1
    status: int | None = None  # in place of an answer
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None  # bytes of the body after which the connection breaks
    flip: bool = False  # the first byte of the body is wrong


@dataclass
class Hub:
    """The server's address, what it does, and the requests so far."""

    repositories: Repositories
    url: str = ""
    redirects: bool = False  # whether files in LFS are served by another host
    rate: float | None = None  # bytes per second of one connection
    token: str | None = None  # without which no file is served
    faults: list[Fault] = field(default_factory=list)
    # method, path and headers of the requests so far
    seen: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def requests(self) -> list[str]:
        """Paths that were asked for."""
        return [path for _, path, _ in self.seen]

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a process that uses this hub, with its caches in a folder."""
        return os.environ | {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0",  # tests before this one may have set it
            "HF_TOKEN": "",
            "DASKMETRICS_CACHE": str(home / "cache"),
        }

    def answer(self, path: str, authorization: str = "") -> tuple[int, object, dict[str, str]]:
        """Status, body (a file or JSON) and headers for a path."""
        if path.startswith("/lfs/"):
            branches = chain.from_iterable(map(dict.values, self.repositories.values()))
            files = chain.from_iterable(map(dict.items, branches))
            digest = path.split("/")[2]
            return 200, next(data for name, data in files if name_of(name, data) == digest), {}
        name, *rest = [*path.removeprefix("/api/models").strip("/").split("/"), "", "", ""]
        if name not in self.repositories:  # of an organisation
            name, *rest = f"{name}/{rest[0]}", *rest[1:]
        kind, *rest = rest
        branches = self.repositories.get(name)
        if branches is None:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if kind == "refs":
            listed = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit(files)}
                for name, files in branches.items()
            ]
            return 200, {"branches": listed, "converts": [], "tags": []}, {}
        by_commit = {commit(files): files for files in branches.values()}
        revision = unquote(rest[0])
        found = branches.get(revision) or by_commit.get(revision)
        if found is None:
            return 404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"}
        if kind == "tree":
            listed = [
                {"type": "file", "path": file, **described(file, data)}
                for file, data in found.items()
            ]
            return 200, listed, {}
        if kind == "revision":
            siblings = [
                {"rfilename": file, "size": size(data), "blobId": git(data)}
                for file, data in found.items()
            ]
            return 200, {"id": name, "sha": commit(found), "siblings": siblings}, {}
        if self.token and authorization != f"Bearer {self.token}":
            status = 403 if authorization else 401
            return status, {"error": "Access is restricted"}, {"X-Error-Code": "GatedRepo"}
        return self._file("/".join(rest[1:]).strip("/"), found)

    def _file(self, name: str, files: Mapping[str, File]) -> tuple[int, object, dict[str, str]]:
        headers = {"X-Repo-Commit": commit(files)}
        if name not in files:
            return 404, {"error": "Entry not found"}, {**headers, "X-Error-Code": "EntryNotFound"}
        digest = name_of(name, files[name])
        if self.redirects and name.endswith(LFS):  # another name of this machine is another host
            place = f"{self.url.replace('127.0.0.1', 'localhost')}/lfs/{digest}?signature=secret"
            linked = {"X-Linked-Size": str(size(files[name])), "X-Linked-Etag": f'"{digest}"'}
            return 302, {}, {**headers, **linked, "Location": place}
        return 200, files[name], {**headers, "ETag": f'"{digest}"'}

    def fault(self, request: str) -> Fault | None:
        """The fault of this request, which is used up."""
        for fault in self.faults:
            if fault.times and fault.match in request:
                fault.times -= 1
                return fault
        return None


def use(hub: Hub, home: Path, patch: pytest.MonkeyPatch) -> None:
    """Make this process use a hub, with its caches in a folder; the client reads its variables only
    when imported.
    """
    from huggingface_hub import constants

    for name in ("HF_HUB_OFFLINE", "HF_TOKEN"):
        patch.delenv(name, raising=False)
    for name, value in (("HF_ENDPOINT", hub.url), ("DASKMETRICS_CACHE", str(home / "cache"))):
        patch.setenv(name, value)
    patch.setattr(constants, "ENDPOINT", hub.url)
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    patch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    patch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    patch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        hub.url + "/{repo_id}/resolve/{revision}/{filename}",
    )


def read(data: File) -> bytes:
    return data if isinstance(data, bytes) else data.read_bytes()


def size(data: File) -> int:
    return len(data) if isinstance(data, bytes) else data.stat().st_size


@cache
def git(data: File) -> str:
    return hashlib.sha1(b"blob %d\0" % size(data) + read(data)).hexdigest()


@cache
def sha256(data: File) -> str:
    return hashlib.sha256(read(data)).hexdigest()


def name_of(file: str, data: File) -> str:
    """The hash by which the hub names a file."""
    return sha256(data) if file.endswith(LFS) else git(data)


def described(file: str, data: File) -> dict[str, object]:
    lfs = {"oid": name_of(file, data), "size": size(data), "pointerSize": 130}
    return {"size": size(data), "oid": git(data), **({"lfs": lfs} if file.endswith(LFS) else {})}


def commit(files: Mapping[str, File]) -> str:
    digests = sorted((name, name_of(name, data)) for name, data in files.items())
    return hashlib.sha1(repr(digests).encode()).hexdigest()


@contextmanager
def serve(repositories: Repositories) -> Iterator[Hub]:
    """Serve these repositories on a free port of this machine."""
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.command == "POST":
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlparse(self.path).path
            hub.seen.append((self.command, path, dict(self.headers)))
            fault = hub.fault(f"{self.command} {path}")
            if fault and fault.status:
                self.give(fault.status, {"error": "a fault"}, dict(fault.headers))
            else:
                self.give(*hub.answer(path, self.headers.get("Authorization", "")), fault)

        do_HEAD = do_POST = do_GET

        def give(
            self, status: int, body: object, headers: dict[str, str], fault: Fault | None = None
        ) -> None:
            is_file = isinstance(body, bytes | Path)
            data = read(body) if isinstance(body, bytes | Path) else json.dumps(body).encode()
            asked = self.headers.get("Range", "").removeprefix("bytes=")
            if is_file:
                headers["Accept-Ranges"] = "bytes"
                if asked:
                    first, last = asked.split("-")
                    start, end = int(first), min(int(last or len(data)) + 1, len(data))
                    status, headers["Content-Range"] = 206, f"bytes {start}-{end - 1}/{len(data)}"
                    data = data[start:end]
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.send(data, is_file, fault)

        def send(self, data: bytes, is_file: bool, fault: Fault | None) -> None:
            if fault and fault.flip:
                data = bytes([data[0] ^ 1]) + data[1:]
            whole = len(data)
            data = data[: fault.cut] if fault and fault.cut is not None else data
            for start in range(0, len(data), BLOCK):
                block = data[start : start + BLOCK]
                try:
                    self.wfile.write(block)
                except OSError:  # the client has gone
                    self.close_connection = True
                    return
                if hub.rate and is_file:
                    time.sleep(len(block) / hub.rate)
            self.close_connection = self.close_connection or len(data) < whole

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    # its end is noticed at once, and not after half a second
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
