"""Policies: which cell to pay for next. One policy per file.

=================== ==================================================================================
`race`              duels between the leader and its rivals, on the cheapest telling cells; the default
`lucb`              the leader and its strongest challenger, by confidence bounds
`halving`           all arms on one task, the better half on two, ...; `hyperband`: several of these
`thompson`          the best arms of draws from the posterior
`gp_ei`, `gp_ucb`   whole arms by expected improvement, or by an upper bound
`linucb`            whole arms by a linear model of their features; `linear_ts` by a draw from it
`random`, `sweep`   any cell; every cell, which is the truth that others are measured by
`tries`, `whole`    what policies that are there to compare with share
`registry`          all of them by name, with those of other packages
=================== ==================================================================================
"""
