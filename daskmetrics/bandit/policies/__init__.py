"""Policies: which cell to pay for next.

============ =========================================================================================
`race`       a cell, or a duel of the leader and a rival, with the most information per cost; the default
`lucb`       the leader and its strongest challenger, by confidence bounds
`halving`    all arms on one task, the better half on two, ...; Hyperband: several of these
`thompson`   the best arms of draws from the posterior
`baselines`  for comparison: policies that pay for whole arms, random cells, and all cells in order
`_averages`  averages of arms that policies without a posterior use
`_registry`  the policies by name, with those of other packages
============ =========================================================================================
"""

__all__: list[str] = []
