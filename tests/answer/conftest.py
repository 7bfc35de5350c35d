"""Runs with made-up values, for their numbers."""

from tests.report.conftest import a_run, finished, read_out, stories

__all__ = ["a_run", "finished", "read_out", "stories"]
