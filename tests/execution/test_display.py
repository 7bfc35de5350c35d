from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from daskmetrics.execution.display import Display, NotebookCell, seconds_left


def test_a_notebook_draws_bars_again_in_one_output(monkeypatch):
    drawn = []
    handle = SimpleNamespace(update=lambda html: drawn.append(html.data))
    monkeypatch.setattr("IPython.display.display", lambda html, display_id: handle)
    cell = NotebookCell(lambda: "bars")
    for at_once in (False, False, True):
        cell.draw(at_once)
    assert drawn == ["bars"]


def test_a_listener_hears_every_change_and_gets_all_as_text(capsys):
    heard = []
    with Display(on_change=lambda: heard.append(display.phases)) as display:
        display.phase("search", 10)
        display.advance("search", "a cell", to=4)
        display.advance("unknown", "")
        display.message("[yellow]careful <b>[/]")
    assert heard == [{"search": "0 of 10"}, {"search": "4 of 10"}, {"search": "4 of 10"}]
    assert list(display.messages) == ["careful <b>"]
    shown = display.as_html()
    assert "4 of 10" in shown and "a cell" in shown and "careful &lt;b&gt;" in shown
    assert capsys.readouterr() == ("", "")


def test_a_file_gets_plain_lines_and_a_repeated_phase_one_bar():
    text = io.StringIO()
    with Display(Console(file=text, width=120)) as display:
        display.phase("measure", 4, done=1)
        display.advance("measure", "tiny@step1")
        display.phase("measure", 2, done=1)
        display.advance("measure", "tiny@step1")
        display.phase("search", 100, unit="% of budget")
        display.advance("search", "tiny@step8/2:stdlib:order  0.512", to=100.0)
        display.phase("layers", 100)
        display.advance("layers", "reads", to=1.0, left=90.0)
        assert seconds_left(display._bars.tasks[-1]) == 90.0
    assert "measure: 2 of 2  tiny@step1" in text.getvalue()
    assert "search: 100 % of budget" in text.getvalue()


@pytest.mark.parametrize(("width", "bar"), [(120, 28), (80, 10)])
def test_the_bar_of_a_search_names_what_it_counts_and_ends_full(width, bar):
    """A search may need a share of its budget; a narrow terminal shortens the latest result alone."""
    text = io.StringIO()
    console = Console(
        file=text, force_terminal=True, color_system=None, width=width, legacy_windows=False
    )
    with Display(console) as display:
        display.phase("search", 100, 10.0, unit="% of budget")
        display.advance("search", "tiny@step8/2:stdlib:order  0.512", to=51.3)
        display.finish("search")
        display.finish("nothing")
    line = [line for line in text.getvalue().splitlines() if "search" in line][-1]
    assert "51 % of budget" in line and "tiny@step8/2" in line
    assert "━" * bar in line and "╺" not in line
    assert line.endswith("…") == (width == 80)
