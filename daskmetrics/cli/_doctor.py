"""The command that checks what a profile, an experiment or a run needs."""

from __future__ import annotations

from collections import Counter

import click

from daskmetrics.cli._common import RUN, Output, answering, end_as_by_ctrl_c, example, note
from daskmetrics.core.text import plural

MOST = 100  # larger exit codes have other meanings in shells
MARKS = {"ok": "OK", "warning": "WARN", "failure": "FAIL"}


@click.command(epilog=example("daskmetrics doctor l40s", "daskmetrics doctor demo"))
@click.argument("subject", default="local", shell_complete=RUN.shell_complete)
@click.option(
    "--worker",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=1,
    metavar="[N]",
    help="Also start N workers (default: one), check one, and the network between several.",
)
@answering
def doctor(subject: str, worker: int | None) -> Output:
    """Check what a profile, an experiment or a run needs, with a remedy for each failure.

    SUBJECT is the name or YAML of a cluster profile, an experiment's YAML, or the folder or name of
    a run. Slurm is asked whether it would accept the jobs. The exit code is the number of failures;
    warnings do not count.

    What only a worker can tell (versions, GPU, transports, clock, folder, network) is checked with
    --worker, which starts one and ends it. With --worker 2, ranks of torch on both exchange a
    tensor, as those of a training do.
    """
    from daskmetrics.planning.doctor import collect, examine

    facts = collect(subject)
    findings = examine(facts)
    # of those of this machine only what is wrong is shown
    shown = {name: found for name, found in findings.items() if found and found.severity != "ok"}
    if worker:
        from daskmetrics.planning.doctor.worker import start_and_examine

        note(f"Waiting for {plural(worker)} ({facts.profile.kind}) ...")
        end_as_by_ctrl_c()
        of_worker = start_and_examine(facts.profile, note, worker)
        shown |= of_worker
        findings |= of_worker
    counts = Counter(finding.severity for finding in findings.values() if finding)
    passed = [name for name, found in findings.items() if found and found.severity == "ok"]
    summary = (
        f"{len(findings)} checks: {counts['failure']} failed, {counts['warning']} warned,"
        f" {len(findings) - counts.total()} do not apply, {len(passed)} passed: {', '.join(passed)}."
    )
    lines = []
    for name, finding in shown.items():
        lines.append(f"{MARKS[finding.severity]:<5} {name:<20} {finding.message}")
        if finding.remedy:
            lines.append(f"{'':27}-> {finding.remedy}")
    return Output(
        lambda: {name: finding or {"severity": "skipped"} for name, finding in findings.items()},
        [*lines, summary],
        min(MOST, counts["failure"]),
    )
