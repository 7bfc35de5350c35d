"""Checks before or after a run of what can fail, each with a remedy: of a profile, an experiment or
a run.

=========== =======================================================
`facts`     the facts that checks read, and their collection
`checks`    the checks, and the findings that they return
`worker`    the checks of workers, which are started for them
`_exchange` the rank of torch that exchanges a tensor with others
=========== =======================================================
"""

from daskmetrics.planning.doctor.checks import CHECKS, Finding, examine
from daskmetrics.planning.doctor.facts import Facts, collect

__all__ = ["CHECKS", "Facts", "Finding", "collect", "examine"]
