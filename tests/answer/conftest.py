"""Runs with made-up values, for their numbers."""

from tests.report.conftest import a_run, finished, stories

__all__ = ["a_run", "finished", "stories"]
