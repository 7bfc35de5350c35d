"""A small read-only server of the runs in a folder: their list, a page for each that follows it,
comparisons, reports.

Everything lies below a random token in the address, on the loopback interface. Nothing is served
but these pages and the files of the runs' reports. Files are read in one other thread, so that a
large journal blocks no page, and again only when they have changed.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from jinja2 import TemplateError
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler
from yaml import YAMLError

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import cell_of
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unknown
from daskmetrics.core.failures import failures_table
from daskmetrics.core.files import RunFolder
from daskmetrics.execution.journal import holder
from daskmetrics.execution.map.folder import is_map
from daskmetrics.report import sections
from daskmetrics.report._run import Run, status_rows
from daskmetrics.report.templates import rows_of, template

INTERVAL = 3  # seconds between two looks of an open page
LATEST = 12  # decisions that the page of a run lists
FILES = {
    ".html": "text/html",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
T = TypeVar("T")
HEADERS = {
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; form-action 'self';"
    " script-src 'nonce-{}'"
)
MOST_OPEN = 8  # runs that are kept in memory for pages of their own
MOST_ROWS = 1024  # rows that are
Row = dict[str, Any]
Stamp = tuple[int, int]  # of a journal: its modification time in nanoseconds, and its size
# what reading files may raise that are damaged, or that another program has written
UNREADABLE = (
    *(DaskmetricsError, OSError, EOFError, TemplateError, YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration),
)


class RunCollection:
    """The runs in a folder; it reads their files, and writes nothing.

    Parameters
    ----------
    folder : Path
        The folder that holds the folders of the runs.

    Raises
    ------
    ConfigError
        If it is not a folder, or itself the folder of a run.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(
                f"There is no folder '{folder}'. Give the folder that holds the runs, which 'daskmetrics"
                " run' makes."
            )
        if RunFolder(folder).journal.exists():
            raise ConfigError(
                f"'{folder}' is a run. Give the folder that holds it: '{folder.resolve().parent}'."
            )
        self.folder = folder

    def rows(self) -> list[Row]:
        """A row for each run, the latest changed first: ``name``, ``changed`` (seconds since 1970),
        and what the template `run` says or, where it cannot be read, the ``problem``.
        """
        rows = []
        for folder in self._folders().values():
            stamp = _stamp(folder)
            row: Row = {"name": folder.path.name, "changed": stamp[0] / 1e9}
            row |= _row(folder, stamp)
            # whether a process drives it now, which its journal does not say
            if row["state"] == "unfinished" and holder(folder.lock):
                row["state"] = "running"
            rows.append(row)
        return sorted(rows, key=lambda row: row["changed"], reverse=True)

    def run(self, name: str) -> Run:
        """A run by the name of its folder, as its files are now.

        Raises
        ------
        ConfigError
            If there is no such run in the folder: a path is not a name.
        DataError
            If it cannot be read.
        """
        folder = self._folder_of(name)
        return _opened(folder.path, _stamp(folder))

    def file_of_report(self, name: str, file: str) -> Path | None:
        """A file of a run's report, if there is one of this name; links to other places are not
        followed.
        """
        folder = self._folder_of(name).report
        if folder.is_dir() and not folder.is_symlink():
            for path in folder.iterdir():
                if path.name == file and path.is_file() and not path.is_symlink():
                    return path
        return None

    def _folders(self) -> Mapping[str, RunFolder]:
        """What looks like a run, by name; nothing outside of the folder, whatever links point
        to.
        """
        folders = {}
        for path in self.folder.iterdir():
            folder = RunFolder(path)
            if not path.is_symlink() and (folder.journal.exists() or folder.config.exists()):
                folders[path.name] = folder
        return folders

    def _folder_of(self, name: str) -> RunFolder:
        folders = self._folders()
        if name not in folders:
            raise unknown("run", name, sorted(folders))
        return folders[name]


def _stamp(folder: RunFolder) -> Stamp:
    try:
        stat = folder.journal.stat()
    except OSError:
        stat = folder.path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(MOST_OPEN)
def _opened(path: Path, stamp: Stamp) -> Run:
    return Run(path)


@lru_cache(MOST_ROWS)
def _row(folder: RunFolder, stamp: Stamp) -> Row:
    """What the list says of a run, whatever a damaged or foreign folder holds."""
    if is_map(folder.path):
        command = f"daskmetrics status {quote(str(folder.path))}"
        return {"state": "map", "problem": f"Its items are listed by: {command}"}
    try:
        run = Run(folder.path)
        return dict(rows_of("run", run=run, leader=analysis.leader(run)))
    except UNREADABLE as error:
        return {"state": "not readable", "problem": reason(error)}


def reason(error: Exception) -> str:
    """Why a run cannot be read: our own message, or any other error, as of a file that another
    program has written.
    """
    if isinstance(error, DaskmetricsError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class _Page(RequestHandler):  # type: ignore[misc]  # tornado is followed without its types
    """All pages, below the token; errors are short pages."""

    def initialize(self, runs: RunCollection, token: str, pool: Executor) -> None:
        self.runs = runs
        self.token = token
        self.pool = pool

    def prepare(self) -> None:
        token = self.request.path.split("/")[1]
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise HTTPError(403)

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **options: object) -> None:
        reasons = {
            403: "Open the link that `daskmetrics runs serve` has printed: it holds the token."
        }
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(reasons.get(status_code, "There is no such page."))

    async def get(self, path: str) -> None:
        match path.split("/")[1:]:
            case ["report", name, file]:
                await self._in_pool(self._send_file, name, file)
            case [""] | ["compare"] | ["run", _] as parts:
                nonce = secrets.token_urlsafe(12)
                self.set_header("Content-Security-Policy", POLICY.format(nonce))
                self.finish(await self._in_pool(self._page, parts, nonce))
            case _:
                raise HTTPError(404)

    async def _in_pool(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work, *arguments)

    def _send_file(self, name: str, file: str) -> None:
        try:
            path = self.runs.file_of_report(name, file)
        except ConfigError:
            path = None
        if path is None or path.suffix not in FILES:
            raise HTTPError(404)
        self.set_header("Content-Type", FILES[path.suffix])
        self.write(path.read_bytes())

    def _page(self, parts: Sequence[str], nonce: str) -> str:
        """The filled template; what cannot be read becomes a page with the reason."""
        values: dict[str, object] = dict.fromkeys(("problem", "rows", "run", "tables"))
        try:
            match parts:
                case ["run", name]:
                    values |= self._of_run(name)
                case ["compare"]:
                    values |= self._of_comparison()
                case _:
                    values |= {"title": f"Runs in {self.runs.folder}", "rows": self.runs.rows()}
        except UNREADABLE as error:
            if isinstance(error, ConfigError):
                self.set_status(404)
            values |= {"problem": reason(error), "title": "daskmetrics"}
        up = "../" * (len(parts) - 1)
        page = template("serve.html")
        return page.render(values, up=up, nonce=nonce, interval=INTERVAL, now=time.time())

    def _of_run(self, name: str) -> dict[str, object]:
        run = self.runs.run(name)
        report = self.runs.file_of_report(name, "index.html")
        decisions = []
        for pick in reversed(run.picks[-LATEST:]):
            cell = cell_of(pick)
            scores = {**run.recorded.get(cell.arm, {}), **run.looked.get(cell.arm, {})}
            decisions.append((pick, cell, scores.get(cell.task)))
        return {
            "title": name,
            "run": run,
            "status": dict(status_rows(run)),
            "report": report and f"../report/{name}/index.html",
            "latest": decisions,
            "scores": run.result and sections.scores({name: run}),
            "failures": failures_table(analysis.failures(run)),
        }

    def _of_comparison(self) -> dict[str, object]:
        names = list(dict.fromkeys(self.get_query_arguments("run")))
        if len(names) < 2:
            raise ConfigError("Choose two or more runs to compare.")
        chosen = {name: self.runs.run(name) for name in names}
        tables = {"Results": sections.answers(chosen)}
        if any(run.result for run in chosen.values()):
            tables["Scores of the recommended candidates"] = sections.scores(chosen)
        tables["Different settings"] = sections.settings(chosen)
        return {"title": f"Comparison of {', '.join(names)}", "tables": tables}


async def serve(runs: RunCollection, port: int, on_start: Callable[[str], None]) -> None:
    """Serve the runs until this is cancelled; ``on_start`` is called with the link.

    Port 0 takes any that is free.

    Raises
    ------
    ConfigError
        If another process uses the port.
    """
    try:
        sockets = bind_sockets(port, "127.0.0.1", family=socket.AF_INET)
    except OSError as error:
        raise ConfigError(
            f"Port {port} cannot be used: {error.strerror}. Choose another with --port."
        ) from None
    token = secrets.token_urlsafe(24)
    pool = ThreadPoolExecutor(1)
    options = {"runs": runs, "token": token, "pool": pool}
    pages = Application([("/(.*)", _Page, options)], log_function=lambda page: None)
    server = HTTPServer(pages)
    server.add_sockets(sockets)
    try:
        on_start(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/{token}/")
        await asyncio.Event().wait()
    finally:
        server.stop()
        pool.shutdown(wait=False, cancel_futures=True)
