"""A plan as one value: what is to be done, the options for it, and which of them was chosen; kept beside the run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from daskmetrics.errors import ConfigError
from daskmetrics.layout import RunFolder, private, replace
from daskmetrics.planning import (
    Choice,
    Limits,
    Offer,
    Option,
    Workload,
    available_now,
    break_even,
    choices,
    duration,
    front,
    options,
)

Pair = tuple[Offer, Workload]


@dataclass(frozen=True)
class Proposal:
    """Options for a workload.

    Attributes
    ----------
    name : str
        Of the experiment, or of the workload on paper.
    config : str or None
        The configuration's file; None if there is nothing that could be run.
    pairs : tuple of (Offer, Workload)
    limits : Limits
    at : float
        When it was made.
    settings : tuple of str
        Further ``key=value`` of the run.
    """

    name: str
    config: str | None
    pairs: tuple[Pair, ...]
    limits: Limits
    at: float
    settings: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[Option, ...]:
        return options(self.pairs, self.limits)

    @property
    def choices(self) -> tuple[Choice, ...]:
        return choices(self.options)

    @property
    def front(self) -> tuple[Option, ...]:
        return front(self.options)

    def option(self, number: int) -> Option:
        """The option of a number.

        Raises
        ------
        ConfigError
            If there is none, or it cannot be had.
        """
        found = next((option for option in self.options if option.number == number), None)
        if found is None:
            raise ConfigError(f"There is no option {number}; the plan has 1 to {len(self.options)}.")
        if not found.possible:
            raise ConfigError(f"Option {number} will not do: {'; '.join(found.problems)}. Choose another one.")
        return found

    def settings_of(self, option: Option) -> tuple[str, ...]:
        """What sets a run up as an option has it."""
        offer = option.offer
        own = [f"cluster={offer.profile}", f"cluster.workers={offer.workers}"]
        if offer.partition is not None:
            own += [f'cluster.walltime="{option.walltime}"']
        return (*own, *self.settings)

    def command(self, option: Option) -> str:
        """The line of a shell that runs an option."""
        assert self.config is not None
        words = [f"--set {shlex.quote(setting)}" for setting in self.settings_of(option)]
        return f"daskmetrics run {shlex.quote(self.config)} {' '.join(words)}"


def waits(options: Sequence[Option]) -> list[tuple[Option, str]]:
    """For each option that has to wait: up to which wait it is done before the one that is free now."""
    now = available_now(options)
    if now is None:
        return []
    return [(option, _worth(now, option)) for option in options if option.possible and _has_to_wait(option)]


def _has_to_wait(option: Option) -> bool:
    return option.offer.wait.interval.high > 0


def _worth(now: Option, later: Option) -> str:
    worth = break_even(now, later)
    if worth.value <= 0:
        return f"is not worth any wait: option {now.number} is free now and done sooner"
    bounds = f"{duration(max(0.0, worth.low))} to {duration(worth.high)}"
    told = later.offer.wait
    said = f"{duration(told.value)} ({told.source})"
    verdict = "wait" if told.interval.high < worth.low else "do not" if told.interval.low > worth.high else "too close"
    return f"is worth a wait of {duration(worth.value)} ({bounds}) against option {now.number}; told {said}: {verdict}"


def keep(proposal: Proposal, option: Option, folder: RunFolder) -> None:
    """Write down beside the run what was predicted of it, for `status` and the report to compare."""
    run, total = option.run.interval, option.total
    told = {
        "at": proposal.at,
        "option": option.offer.label,
        "profile": option.offer.profile,
        "workers": option.offer.workers,
        "source": option.run.source,
        "measured": option.run.measured,
        "wait": option.offer.wait.value,
        "run": [run.low, run.value, run.high],
        "total": [total.low, total.value, total.high],
        "worker_hours": option.worker_hours.value,
        "cost": option.cost.value if option.cost else None,
        "phases": {phase.name: [phase.units, phase.seconds.value] for phase in _workload(proposal, option).phases},
    }
    with private():
        folder.create()
        replace(folder.plan, json.dumps(told, indent=1))


def _workload(proposal: Proposal, option: Option) -> Workload:
    return proposal.pairs[option.number - 1][1]
