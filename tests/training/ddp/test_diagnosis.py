from __future__ import annotations

from daskmetrics.training.ddp._diagnosis import RankState, first_failure

NOW = 100.0
PARTNER = RankState(
    rank=0, heard=NOW, step=7, error="Connection closed", of_partner=True, failed=50.0, code=1
)


def failed_rank(*states: RankState, timeout: float = 60.0) -> int | None:
    failure = first_failure(states, NOW, timeout)
    return None if failure is None else failure.rank


def test_no_rank_has_failed_while_all_work() -> None:
    assert failed_rank(RankState(0, NOW - 4), RankState(1, NOW - 59)) is None
    assert failed_rank(RankState(0, NOW, code=0), RankState(1, NOW)) is None


def test_a_rank_killed_without_a_report_comes_before_one_that_reports_an_error() -> None:
    assert failed_rank(PARTNER, RankState(1, NOW - 1, step=7, code=-9)) == 1
    assert failed_rank(PARTNER, RankState(1, NOW - 1, step=7, lost=True)) == 1


def test_a_lost_worker_comes_before_a_killed_rank() -> None:
    assert failed_rank(RankState(0, NOW - 3, code=-9), RankState(1, NOW - 1, lost=True)) == 1


def test_a_silent_rank_comes_before_ranks_that_report_errors() -> None:
    others = RankState(1, NOW - 60, step=7), RankState(2, NOW - 1, step=7)
    assert failed_rank(PARTNER, *others) == 1


def test_the_rank_that_is_silent_longest_has_failed_after_the_timeout() -> None:
    began = [RankState(rank, NOW - silence, began=True) for rank, silence in enumerate((61, 90, 0))]
    assert failed_rank(*began) == 1


def test_a_rank_that_waits_for_its_busy_worker_has_failed_once_others_report_errors() -> None:
    waiting = RankState(1, NOW - 1000)
    assert failed_rank(RankState(0, NOW, began=True), waiting) is None
    assert failed_rank(PARTNER, waiting) == 1


def test_an_error_of_its_own_comes_before_those_of_partners_and_the_first_of_these() -> None:
    raised = RankState(1, NOW, step=7, error="ValueError", failed=51.0, code=1)
    assert failed_rank(PARTNER, raised) == 1
    later = RankState(1, NOW, step=7, error="reset", of_partner=True, failed=51.0, code=1)
    assert failed_rank(PARTNER, later) == 0


def test_a_configuration_error_is_permanent() -> None:
    wrong = RankState(1, NOW, error="ConfigError: no", failed=49.0, permanent=True, code=1)
    failure = first_failure([PARTNER, wrong], NOW, 60.0)
    assert failure is not None and failure.permanent
    assert not first_failure([PARTNER], NOW, 60.0).permanent
