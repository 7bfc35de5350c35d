"""Hundreds of histories of the loop, and whether its faults would be noticed."""

from __future__ import annotations

import os

import pytest

from daskmetrics.execution.loop import Loop
from tests.execution.mutants import Mutant, mutants
from tests.execution.simulator import World
from tests.execution.test_loop import CASES

SEEDS = int(os.environ.get("DASKMETRICS_SEEDS", "300"))
FOR_MUTANTS = 200


@pytest.mark.parametrize("part", range(10))
def test_nothing_is_lost_or_doubled_and_no_bystander_is_blamed(part):
    for seed in range(part, SEEDS, 10):
        try:
            World(seed, Loop).play()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("mutant", list(mutants()), ids=str)
def test_a_fault_in_the_loop_is_noticed(mutant: Mutant):
    assert noticed(mutant)


def noticed(mutant: Mutant) -> str | None:
    """What noticed it: a direct check, or the seed of a history."""
    loop, policy = mutant.build()
    for check in CASES:
        try:
            check(loop, policy)
        except Exception:
            return str(check.__name__)
    for seed in range(FOR_MUTANTS):
        try:
            World(seed, loop, policy).play()
        except Exception:
            return f"seed {seed}"
    return None
