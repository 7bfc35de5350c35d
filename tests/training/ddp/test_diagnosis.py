from __future__ import annotations

import pytest

from daskmetrics.training.ddp.ranks import RankState, first_failure

NOW = 100.0
PARTNER = RankState(0, NOW, step=7, error="closed", of_partner=True, failed=50.0, code=1)


@pytest.mark.parametrize(
    ("states", "failed"),
    [
        ([RankState(0, NOW - 4), RankState(1, NOW - 59)], None),
        ([RankState(0, NOW, code=0), RankState(1, NOW)], None),
        ([PARTNER, RankState(1, NOW - 1, code=-9)], 1),
        ([PARTNER, RankState(1, NOW - 1, lost=True)], 1),
        ([RankState(0, NOW - 3, code=-9), RankState(1, NOW - 1, lost=True)], 1),
        ([PARTNER, RankState(1, NOW - 60, step=7), RankState(2, NOW - 1, step=7)], 1),
        ([RankState(n, NOW - silent, began=True) for n, silent in enumerate((61, 90, 0))], 1),
        # its worker may be busy, until others report errors
        ([RankState(0, NOW, began=True), RankState(1, NOW - 1000)], None),
        ([PARTNER, RankState(1, NOW - 1000)], 1),
        ([PARTNER, RankState(1, NOW, error="ValueError", failed=51.0, code=1)], 1),
        ([PARTNER, RankState(1, NOW, error="reset", of_partner=True, failed=51.0, code=1)], 0),
    ],
)
def test_the_rank_that_failed_first_is_found(states: list[RankState], failed: int | None) -> None:
    failure = first_failure(states, NOW, timeout=60.0)
    assert (failure and failure.rank) == failed


def test_a_configuration_error_is_permanent() -> None:
    wrong = RankState(1, NOW, error="ConfigError: no", failed=49.0, permanent=True, code=1)
    failure = first_failure([PARTNER, wrong], NOW, 60.0)
    assert failure is not None and failure.permanent
    assert not first_failure([PARTNER], NOW, 60.0).permanent
