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
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError
from daskmetrics.report import _compare as compare
from daskmetrics.report import _format as formats
from daskmetrics.report import _terminal as terminal
from daskmetrics.report import overview
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


class RunServer:
    """Serves the runs of a folder until it is closed.

    Parameters
    ----------
    runs : RunCollection
    port : int
        0 takes any that is free.

    Raises
    ------
    ConfigError
        If another process uses the port.
    """

    def __init__(self, runs: RunCollection, port: int = 0) -> None:
        self.runs, self.token = runs, secrets.token_urlsafe(24)
        self._pool = ThreadPoolExecutor(1)
        try:
            sockets = bind_sockets(port, "127.0.0.1", family=socket.AF_INET)
        except OSError as error:
            raise ConfigError(
                f"Port {port} cannot be used: {error.strerror}. Choose another with --port."
            ) from None
        self._http = HTTPServer(self._application())
        self._http.add_sockets(sockets)
        self.link = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/{self.token}/"

    def _application(self) -> Application:
        options = {"server": self}
        name = "([^/]+)"
        pages = [
            ("/([^/]*)/", _ListPage, options),
            (f"/([^/]*)/run/{name}", _RunPage, options),
            ("/([^/]*)/compare", _ComparePage, options),
            (f"/([^/]*)/report/{name}/{name}", _ReportFile, options),
        ]
        return Application(
            pages,
            default_handler_class=_Missing,
            default_handler_args=options,
            log_function=lambda handler: None,
        )

    async def read(self, work: Callable[[], Any]) -> Any:
        """Do what reads files in the one thread that may."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Stop to listen, and end the thread."""
        self._http.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Page(RequestHandler):  # type: ignore[misc]  # tornado is followed without its types
    """What all pages share: the token, the headers, errors as short pages."""

    def initialize(self, server: RunServer) -> None:
        self.server = server

    def prepare(self) -> None:
        if not hmac.compare_digest(
            self.request.path.split("/")[1].encode(), self.server.token.encode()
        ):
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

    async def show(self, values: Callable[[], Mapping[str, Any]], up: str) -> None:
        """Fill the template; what cannot be read becomes a page with the reason."""

        def page(nonce: str) -> str:
            try:
                shown = {"problem": None, **values()}
            except overview.UNREADABLE as error:
                if isinstance(error, ConfigError):
                    self.set_status(404)
                shown = {"problem": overview.reason(error), "title": "daskmetrics"}
            empty = dict.fromkeys(("rows", "run", "tables"))
            return formats.template("serve.html").render(
                {**empty, **shown},
                up=up,
                nonce=nonce,
                interval=INTERVAL,
                ago=overview.ago,
                terminal=terminal,
            )

        nonce = secrets.token_urlsafe(12)
        self.set_header("Content-Security-Policy", POLICY.format(nonce))
        self.finish(await self.server.read(lambda: page(nonce)))


class _Missing(_Page):
    def get(self, *path: str) -> None:
        raise HTTPError(404)


class _ListPage(_Page):
    def get(self, token: str) -> Awaitable[None]:
        runs = self.server.runs
        return self.show(lambda: {"title": f"Runs in {runs.folder}", "rows": runs.rows()}, up="")


class _RunPage(_Page):
    def get(self, token: str, name: str) -> Awaitable[None]:
        return self.show(lambda: self._values(name), up="../")

    def _values(self, name: str) -> dict[str, Any]:
        run = self.server.runs.run(name)
        return {
            "title": name,
            "run": run,
            "progress": run.done,
            "report": (
                self.server.runs.file_of_report(name, "index.html")
                and f"../report/{name}/index.html"
            ),
            "latest": [
                (pick, overview.score_of(run, pick)) for pick in reversed(run.picks[-LATEST:])
            ],
            "scores": run.result and compare.scores({name: run}),
            "failures": analysis.failures(run),
        }


class _ComparePage(_Page):
    def get(self, token: str) -> Awaitable[None]:
        return self.show(self._values, up="")

    def _values(self) -> dict[str, Any]:
        names = list(dict.fromkeys(self.get_query_arguments("run")))
        if len(names) < 2:
            raise ConfigError("Choose two or more runs to compare.")
        chosen = {name: self.server.runs.run(name) for name in names}
        tables = {"Results": compare.answers(chosen)}
        if any(run.result for run in chosen.values()):
            tables["Scores of the recommended candidates"] = compare.scores(chosen)
        tables["Different settings"] = compare.settings(chosen)
        return {"title": f"Comparison of {', '.join(names)}", "tables": tables}


class _ReportFile(_Page):
    async def get(self, token: str, name: str, file: str) -> None:
        try:
            path = await self.server.read(lambda: self.server.runs.file_of_report(name, file))
        except ConfigError:
            raise HTTPError(404) from None
        if path is None or path.suffix not in FILES:
            raise HTTPError(404)
        self.set_header("Content-Type", FILES[path.suffix])
        self.finish(await self.server.read(path.read_bytes))


async def serve(runs: RunCollection, port: int, on_start: Callable[[str], None]) -> None:
    """Serve the runs until this is cancelled; ``on_start`` is called with the link."""
    server = RunServer(runs, port)
    try:
        on_start(server.link)
        await asyncio.Event().wait()
    finally:
        server.close()
