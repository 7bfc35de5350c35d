from __future__ import annotations

import pytest

from daskmetrics.answer.posterior import posterior_of
from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm


def test_the_posterior_equals_the_one_that_the_search_ended_with(finished):
    found = posterior_of(finished)
    for standing in finished.result.top:
        index = found.problem.arm_index[Arm(**standing["arm"])]
        assert found.posterior.mean[index] == pytest.approx(standing["value"], abs=1e-6)
        assert found.posterior.sd[index] == pytest.approx(standing["sd"], abs=1e-6)
    assert found.problem.arms[found.leader] == finished.best().arm


def test_a_search_without_scores_has_no_posterior(a_run):
    with pytest.raises(DataError, match="no scores yet"):
        posterior_of(a_run(decisions=1))
    with pytest.raises(DataError, match="no tasks"):
        posterior_of(a_run(tasks=()))
