"""The verb that says what will go wrong here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from daskmetrics.cli.common import friendly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskmetrics.doctor import Finding

MARKS = {"ok": "ok", "warning": "WARN", "failure": "FAIL"}
MOST = 100
"""Exit codes above which shells mean something else."""


@click.command()
@click.argument("subject", default="local")
@click.option("--worker", is_flag=True, help="Also start one worker as the profile says, and look at its machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--all", "show_all", is_flag=True, help="Also what is in order, and what does not apply.")
@friendly
def doctor(subject: str, worker: bool, as_json: bool, show_all: bool) -> None:
    """Check what a profile, an experiment or a run needs, and say the remedy of what is wrong.

    SUBJECT is the name or YAML of a cluster profile, an experiment's YAML, or a run's folder. The exit code is the
    number of failures; warnings do not count.
    """
    from daskmetrics import doctor as room

    findings = room.examine(room.gather(room.subject(subject), ask_worker=worker))
    click.echo(_json(findings) if as_json else _text(findings, show_all))
    sys.exit(min(MOST, sum(found is not None and found.verdict is room.Verdict.FAILURE for found in findings.values())))


def _text(findings: Mapping[str, Finding | None], show_all: bool) -> str:
    from daskmetrics.planning.scaling import plural

    lines = []
    for name, found in findings.items():
        if found is None:
            lines += [f"{'--':<5} {name:<20} does not apply, or was not asked"] if show_all else []
        elif found.remedy or show_all:
            lines.append(f"{MARKS[found.verdict.value]:<5} {name:<20} {found.said}")
            lines += [f"{'':<26} -> {found.remedy}"] if found.remedy else []
    counted = [found.verdict.value for found in findings.values() if found]
    failed, warned = plural(counted.count("failure"), "failure"), plural(counted.count("warning"), "warning")
    numbers = f"{failed}, {warned}, {counted.count('ok')} in order"
    skipped = f", {len(findings) - len(counted)} do not apply" if len(counted) < len(findings) else ""
    return "\n".join([*lines, f"{len(findings)} checks: {numbers}{skipped}."])


def _json(findings: Mapping[str, Finding | None]) -> str:
    told = {
        name: {"verdict": "skipped"}
        if found is None
        else {"verdict": found.verdict.value, "said": found.said, "remedy": found.remedy}
        for name, found in findings.items()
    }
    return json.dumps(told, indent=1)


VERBS = (doctor,)
