"""A local server that speaks the part of the model hub's protocol that lists branches and files and serves them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

Repositories = Mapping[str, Mapping[str, Mapping[str, bytes]]]  # files by repository and branch


class Hub:
    """The server's address, and the paths that were requested so far."""

    def __init__(self, repositories: Repositories) -> None:
        self.repositories, self.requests = repositories, list[str]()
        self.url = ""

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a process that uses this hub, with its caches in a folder."""
        plain = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
        return {**plain, "HF_ENDPOINT": self.url, "HF_HOME": str(home), "DASKMETRICS_CACHE": str(home / "cache")}

    def answer(self, path: str) -> tuple[int, object, dict[str, str]]:
        """Status, body (bytes or JSON) and headers for a path."""
        owner, name, kind, *rest = [*path.removeprefix("/api/models").strip("/").split("/"), "", ""]
        branches = self.repositories.get(f"{owner}/{name}")
        if branches is None:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if kind == "refs":
            listed = [
                {"name": each, "ref": f"refs/heads/{each}", "targetCommit": commit(branches[each])} for each in branches
            ]
            return 200, {"branches": listed, "converts": [], "tags": []}, {}
        by_commit = {commit(files): files for files in branches.values()}
        revision = unquote(rest[0])
        files = branches.get(revision) or by_commit.get(revision)
        if files is None:
            return 404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"}
        if kind == "tree":
            return 200, [{"type": "file", "path": file, **described(file, data)} for file, data in files.items()], {}
        if kind == "revision":
            siblings = [{"rfilename": file, "size": len(data), "blobId": git(data)} for file, data in files.items()]
            return 200, {"id": f"{owner}/{name}", "sha": commit(files), "siblings": siblings}, {}
        file = "/".join(rest[1:]).strip("/")
        if file not in files:
            return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit(files)}
        return 200, files[file], {"ETag": f'"{name_of(file, files[file])}"', "X-Repo-Commit": commit(files)}


def git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def name_of(file: str, data: bytes) -> str:
    """The hash by which the hub names a file: weights are in LFS."""
    return hashlib.sha256(data).hexdigest() if file.endswith(".safetensors") else git(data)


def described(file: str, data: bytes) -> dict[str, object]:
    lfs = {"oid": name_of(file, data), "size": len(data), "pointerSize": 130}
    return {"size": len(data), "oid": git(data), **({"lfs": lfs} if file.endswith(".safetensors") else {})}


def commit(files: Mapping[str, bytes]) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@contextmanager
def serve(repositories: Repositories) -> Iterator[Hub]:
    """Serve these repositories on a free port of this machine."""
    hub = Hub(repositories)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlparse(self.path).path
            hub.requests.append(path)
            status, body, headers = hub.answer(path)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
