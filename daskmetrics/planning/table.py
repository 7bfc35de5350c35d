"""A plan as one table for readers, and as a document for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, size_text
from daskmetrics.planning.options import Option, spent_in
from daskmetrics.planning.plan import PlanRequest, Proposal
from daskmetrics.planning.work import Work, amount, bounded


def _numbers_of(options: Iterable[Option]) -> str:
    return listed(list(map(str, sorted(option.number for option in options))))


def reason_of(proposal: Proposal) -> str:
    """Why the recommended option is recommended."""
    choice = proposal.recommended
    if choice is None:
        return "No option can be used."
    option = choice.option
    purposes = defaultdict[Option, list[str]](list)
    for best in proposal.best:
        purposes[best.best].append(best.purpose)
    reason = "it has the smallest product of time and cost"
    if sum(option.possible for option in proposal.options) == 1:
        return f"Option {option.number} is recommended: it is the only option that can be used."
    if choice.ties:
        better, unclear = "cheapest", "times"
        if choice.purpose == "cheapest":
            better, unclear = "fastest", "costs"
        among = _numbers_of([choice.best, *choice.ties])
        reason = f"it is the {better} of {among}, whose {unclear} are too close to call"
    elif option in purposes:
        reason = f"it is the {listed(purposes[option])} option"
    spent = spent_in(proposal.options)
    for other, labels in purposes.items():
        if other is not option:
            times = option.total[1] / max(other.total[1], 1e-9)
            costs = spent(option)[1] / max(spent(other)[1], 1e-9)
            reason += f"; {times:.2g} x the time and {costs:.2g} x the cost of {other.number}"
            reason += f", the {listed(labels)} option"
    return f"Option {option.number} is recommended: {reason}."


def proposal_table(proposal: Proposal) -> Table:
    """A row for each option.

    Below the table stand the reason of the recommendation, where the numbers come from, what the run
    needs, and the commands.
    """
    title = f"Plan of {proposal.name} (nothing is submitted)"
    if proposal.is_finished:
        return Table((), (("state", "finished: nothing is left to do"),), title)
    options = proposal.options
    unit = "GPU"
    if any(option.offer.device == "cpu" for option in options):
        unit = "worker"
    labels = {option: labels_of(option, proposal) for option in options}
    rows = [option_row(option, unit) | {"": ", ".join(labels[option])} for option in options]
    if not any(option.offer.wait.seconds[2] for option in options):
        for row in rows:  # the same as the total
            row["run"] = ""
    commands = [
        f"{option.number}: {proposal.command(option)}"
        for option in options
        if labels[option] and option.possible
    ]
    if commands and not proposal.request.is_program:
        commands.append("Add --submit NUMBER to run an option.")
    notes = [reason_of(proposal)]
    most = max(option.offer.workers for option in options)
    phases = proposal.work.phases
    notes += [
        f"search: more than {phase.at_once} workers bring no earlier answer"
        for phase in phases
        if phase.name == "search" and phase.at_once and most > phase.at_once
    ]
    if sum(bool(phase.steps) for phase in phases) > 1:
        notes.append("batch, and the time and value of a training, are those of the longest one")
    notes += sources(options, proposal.at)
    notes += needs(proposal.work, proposal.request)
    return Table.of(rows, title, notes + commands)


def option_row(option: Option, unit: str) -> dict[str, str]:
    """The times and costs of an option, by column."""
    offer = option.offer
    row = {
        "#": str(option.number),
        "configuration": " ".join(filter(None, (offer.profile, offer.partition))),
        "nodes": f"{offer.nodes:,}",
        f"{unit}s": f"{offer.workers} {offer.device}",
        **pace_cells(option, unit),
        "free": "?",
        "wait": "none",
        "run": bounded(option.run.seconds),
        "total": bounded(option.total),
        f"{unit} hours": amount(option.hours[1]),
        "cost": "",
        "success": "",
        "walltime": "",
    }
    if offer.free is not None:
        row["free"] = f"{offer.free:,}"
    if offer.wait.seconds[2]:
        row["wait"] = duration(offer.wait.expected)
    if option.cost is not None:
        row["cost"] = amount(option.cost[1])
    if offer.success:
        row["success"] = f"{offer.success.chance[1]:.0%}"
    if offer.partition:
        row["walltime"] = option.walltime
    if offer.partition and option.jobs > 1:
        row["walltime"] += f" x {option.jobs}"
    return row


def pace_cells(option: Option, unit: str) -> dict[str, str]:
    """The batch of a training, its time, and its value."""
    hour = f"a {unit} hour buys"
    cells = dict.fromkeys(("batch", "time per epoch", "time per step", hour), "")
    pace = option.pace
    if pace is None:
        return cells
    if pace.batch:
        cells["batch"] = f"{amount(pace.batch)} ({amount(pace.batch / pace.ranks)} per {unit})"
    if "epoch" in pace.seconds:
        cells["time per epoch"] = bounded(pace.seconds["epoch"])
    elif "step" in pace.seconds:
        cells["time per step"] = bounded(pace.seconds["step"], lambda time: f"{amount(time)} s")
    # samples can be compared best, then epochs
    for name in ("sample", "epoch", "step"):
        if name in pace.seconds:
            count = 3600 / (option.offer.workers * pace.seconds[name][1])
            cells[hour] = f"{amount(count)} {name}s"
            break
    return cells


def labels_of(option: Option, proposal: Proposal) -> list[str]:
    """What an option is best in, or why it cannot be used."""
    if not option.possible:
        return [f"cannot be used: {'; '.join(option.problems)}"]
    labels = []
    if sum(other.possible for other in proposal.options) > 1:
        for choice in proposal.best:
            if option is choice.best:
                labels.append(choice.purpose)
            elif option in choice.ties:
                labels.append(f"{choice.purpose} within the error")
    if proposal.recommended and proposal.recommended.option is option:
        labels.append("recommended")
    return labels


def sources(options: Iterable[Option], now: float) -> Iterator[str]:
    """Where the numbers come from, and how old they are."""
    numbers = defaultdict[str, list[Option]](list)
    for option in options:
        offer = option.offer
        for name, estimate in {"run": option.run, "wait": offer.wait}.items():
            age = ""
            if estimate.at is not None:
                age = f", {duration(max(0.0, now - estimate.at))} ago"
            numbers[f"{name} of {{}}: {estimate.source}{age}"].append(option)
        if offer.success:
            numbers[f"success of {{}}: {offer.success}"].append(option)
    for text, of_text in numbers.items():
        yield text.replace("{}", _numbers_of(of_text), 1)


def needs(work: Work, request: PlanRequest) -> Iterator[str]:
    """What the work needs; of a program it is not known."""
    if request.times:
        yield f"units: {work.units} times what `bench` has timed"
        if not request.is_program:
            yield "not counted: measuring and scoring the checkpoints, whose number is not known"
        return
    yield f"units: {work.units}"
    gpu = f"{work.vram_gib:.1f} GiB on its GPU"
    yield f"memory of a worker: {work.host_gib:.1f} GiB, {gpu} (estimated)"
    yield f"disk: {size_text(work.disk_bytes)} of results"
    if work.texts:
        yield f"texts: {work.texts}"
    if work.missing:
        yield f"not on this machine: {', '.join(work.missing)}"


def proposal_document(proposal: Proposal) -> dict[str, object]:
    """A plan for other programs; see docs/json.md."""
    options = []
    for option in proposal.options:
        command = None
        if option.possible:
            command = proposal.command(option)
        options.append({**vars(option), "walltime": option.walltime, "command": command})
    best = {}
    for choice in proposal.best:
        ties = [option.number for option in choice.ties]
        best[choice.purpose] = {"option": choice.best.number, "ties": ties}
    chosen = proposal.recommended
    return {
        "name": proposal.name,
        "at": proposal.at,
        "options": options,
        "best": best,
        "purpose": proposal.request.purpose,
        "chosen": chosen and chosen.option.number,
        "reason": reason_of(proposal),
    }
