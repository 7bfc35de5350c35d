"""A small read-only server of the runs in a folder: their list, a page for each that follows it,
comparisons, reports.

Everything lies below a random token in the address, on the loopback interface. Nothing is served
but these pages and the files of the runs' reports. Files are read in one other thread, so that a
large journal blocks no page.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import cell_of
from daskmetrics.core.errors import ConfigError
from daskmetrics.report import _compare as compare
from daskmetrics.report import _format as formats
from daskmetrics.report import overview
from daskmetrics.report._run import status_rows
from daskmetrics.report.overview import RunCollection

INTERVAL = 3  # seconds between two looks of an open page
LATEST = 12  # decisions that the page of a run lists
FILES = {
    ".html": "text/html",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
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


class _Page(RequestHandler):  # type: ignore[misc]  # tornado is followed without its types
    """All pages, below the token; errors are short pages."""

    def initialize(self, runs: RunCollection, token: str, pool: Executor) -> None:
        self.runs, self.token, self.pool = runs, token, pool

    def prepare(self) -> None:
        token = self.request.path.split("/")[1]
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            raise HTTPError(403)

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **options: Any) -> None:
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

    async def _in_pool(self, work: Callable[..., Any], *arguments: Any) -> Any:
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
        values: dict[str, Any] = dict.fromkeys(("problem", "rows", "run", "tables"))
        try:
            match parts:
                case ["run", name]:
                    values |= self._of_run(name)
                case ["compare"]:
                    values |= self._of_comparison()
                case _:
                    values |= {"title": f"Runs in {self.runs.folder}", "rows": self.runs.rows()}
        except overview.UNREADABLE as error:
            if isinstance(error, ConfigError):
                self.set_status(404)
            values |= {"problem": overview.reason(error), "title": "daskmetrics"}
        up = "../" * (len(parts) - 1)
        page = formats.template("serve.html")
        return page.render(values, up=up, nonce=nonce, interval=INTERVAL, now=time.time())

    def _of_run(self, name: str) -> dict[str, Any]:
        run = self.runs.run(name)
        report = self.runs.file_of_report(name, "index.html")
        decisions = []
        for pick in reversed(run.picks[-LATEST:]):
            cell = cell_of(pick)
            score = run.recorded.get(cell.arm, {}).get(cell.task)
            decisions.append((pick, cell, formats.scored(score, without="open")))
        return {
            "title": name,
            "run": run,
            "status": dict(status_rows(run)),
            "report": report and f"../report/{name}/index.html",
            "latest": decisions,
            "scores": run.result and compare.scores({name: run}),
            "failures": analysis.failures(run),
        }

    def _of_comparison(self) -> dict[str, Any]:
        names = list(dict.fromkeys(self.get_query_arguments("run")))
        if len(names) < 2:
            raise ConfigError("Choose two or more runs to compare.")
        chosen = {name: self.runs.run(name) for name in names}
        tables = {"Results": compare.answers(chosen)}
        if any(run.result for run in chosen.values()):
            tables["Scores of the recommended candidates"] = compare.scores(chosen)
        tables["Different settings"] = compare.settings(chosen)
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
    token, pool = secrets.token_urlsafe(24), ThreadPoolExecutor(1)
    options = {"runs": runs, "token": token, "pool": pool}
    server = HTTPServer(Application([("/(.*)", _Page, options)], log_function=lambda page: None))
    server.add_sockets(sockets)
    try:
        on_start(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/{token}/")
        await asyncio.Event().wait()
    finally:
        server.stop()
        pool.shutdown(wait=False, cancel_futures=True)
