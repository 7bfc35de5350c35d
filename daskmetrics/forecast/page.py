"""Sheets as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from daskmetrics.forecast.text import Sheet

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}img{max-width:100%}"
)


def write_page(title: str, sheets: Sequence[Sheet], path: Path, picture: Path | None = None) -> Path:
    """Write the page; nothing in it is loaded from anywhere."""
    body = "".join(part for sheet in sheets for part in _section(sheet))
    if picture is not None:
        png = base64.b64encode(picture.read_bytes()).decode()
        body += f'<img alt="time and speed-up against number of workers" src="data:image/png;base64,{png}">'
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>', encoding="utf-8")
    return path


def _section(sheet: Sheet) -> Iterator[str]:
    yield f"<h2>{escape(sheet.title)}</h2><table><tr>"
    yield from (f"<th>{escape(name)}</th>" for name in sheet.header)
    yield "</tr>"
    for row in sheet.rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"
    yield from (f"<p>{escape(note)}</p>" for note in sheet.notes)
