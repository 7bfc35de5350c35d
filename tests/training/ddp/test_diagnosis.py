from __future__ import annotations

import pytest

from daskmetrics.training.ddp.ranks import Cause, RankEnding, first_failure

PARTNER = RankEnding(0, Cause.PARTNER, "closed", since=50.0)


@pytest.mark.parametrize(
    ("endings", "failed"),
    [
        ([RankEnding(0, Cause.DONE), RankEnding(1, Cause.DONE)], None),
        ([RankEnding(0, Cause.DONE), RankEnding(1, Cause.ENDED)], 1),
        ([PARTNER, RankEnding(1, Cause.KILLED, since=51.0)], 1),
        ([PARTNER, RankEnding(1, Cause.LOST)], 1),
        ([RankEnding(0, Cause.KILLED, since=49.0), RankEnding(1, Cause.LOST, since=51.0)], 1),
        ([PARTNER, RankEnding(1, Cause.STOPPED, since=51.0), RankEnding(2, Cause.ENDED)], 1),
        ([RankEnding(rank, Cause.STOPPED, since=since) for rank, since in enumerate((9, 8))], 1),
        # its worker hangs, or is busy, so that others wait for it
        ([PARTNER, RankEnding(1, Cause.MISSING, since=51.0)], 1),
        ([RankEnding(0, Cause.ERROR), RankEnding(1, Cause.MISSING)], 0),
        ([PARTNER, RankEnding(1, Cause.ERROR, "ValueError", since=51.0)], 1),
        ([PARTNER, RankEnding(1, Cause.PARTNER, "reset", since=51.0)], 0),
    ],
)
def test_the_rank_that_failed_first_is_found(endings, failed) -> None:
    for order in (endings, endings[::-1]):
        failure = first_failure(order)
        assert (failure and failure.rank) == failed
