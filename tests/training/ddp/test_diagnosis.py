from __future__ import annotations

from daskmetrics.training.ddp._diagnosis import Sign, blame

NOW = 100.0
COMPLAINS = Sign(rank=0, heard=NOW, step=7, phase=1, error="Connection closed by peer", failed=50.0, code=1)


def blamed(*signs: Sign, timeout: float = 60.0) -> int | None:
    found = blame(signs, NOW, timeout)
    return None if found is None else found.rank


def test_nobody_is_blamed_while_all_are_well() -> None:
    assert blamed(Sign(0, NOW - 4), Sign(1, NOW - 59)) is None
    assert blamed(Sign(0, NOW, code=0), Sign(1, NOW)) is None


def test_who_was_killed_without_a_word_and_not_who_complains() -> None:
    assert blamed(COMPLAINS, Sign(1, NOW - 1, step=7, code=-9)) == 1
    assert blamed(COMPLAINS, Sign(1, NOW - 1, step=7, lost=True)) == 1


def test_a_lost_worker_comes_before_a_killed_rank() -> None:
    assert blamed(Sign(0, NOW - 3, code=-9), Sign(1, NOW - 1, lost=True)) == 1


def test_who_had_fallen_silent_when_others_complained() -> None:
    assert blamed(COMPLAINS, Sign(1, NOW - 60, step=7), Sign(2, NOW - 1, step=7, phase=1)) == 1


def test_the_longest_silence_counts_once_it_is_too_long() -> None:
    assert blamed(Sign(0, NOW - 61), Sign(1, NOW - 90), Sign(2, NOW)) == 1


def test_the_complaint_from_the_earliest_step_and_phase_counts() -> None:
    raised = Sign(1, NOW, step=7, phase=0, error="ValueError", failed=51.0, code=1)
    assert blamed(COMPLAINS, raised) == 1
    same = Sign(1, NOW, step=7, phase=1, error="out of memory", failed=49.0, code=1)
    assert blamed(COMPLAINS, same) == 1


def test_what_would_fail_again_is_permanent() -> None:
    wrong = Sign(1, NOW, error="ConfigError: no", failed=49.0, permanent=True, code=1)
    found = blame([COMPLAINS, wrong], NOW, 60.0)
    assert found is not None and found.permanent
    assert not blame([COMPLAINS], NOW, 60.0).permanent
