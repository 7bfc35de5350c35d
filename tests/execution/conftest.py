from __future__ import annotations

from tests.bandit.replay.conftest import known, known_csv

__all__ = ["known", "known_csv"]  # fixtures of the replays, for tests that read tables
