from __future__ import annotations

import numpy as np

from benchmarks import looks, search
from daskmetrics.bandit.replay import Scenario, ground_truth


def test_looks_cost_their_share_and_the_whole_overhead_and_do_not_count_in_the_objective():
    table, scenario = search.made_up(), Scenario("published", overhead=2.0)
    plain = scenario.build_problem(table)
    problem, size = looks.with_looks(plain, scenario.overhead), len(table.tasks)
    whole, look = problem.score_cost[:, :size], problem.score_cost[:, size:]
    np.testing.assert_allclose(look - 2.0, looks.SHARE * (whole - 2.0))
    assert problem.objective_weights[size:].tolist() == [0.0] * size
    scores = looks.made_up(table, seed=0)
    assert np.abs(scores.score[:, size:] - scores.score[:, :size]).max() < 5 * scores.stderr[:, size:].max()
    lost = looks.losses(problem, scores, ground_truth(table, plain).loss, plain.exhaustive_cost, [0.1, 0.3])
    assert len(lost) == 2 and lost[1] <= 0.01  # the made-up table is easy
