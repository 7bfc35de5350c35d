"""A plan as tables for readers, and as a document for programs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, plural, size_text
from daskmetrics.planning.options import WORTH, BestOption, Offer, Option, spent_in
from daskmetrics.planning.plan import PlanRequest, Proposal
from daskmetrics.planning.work import Work, amount, bounded

Line = tuple[str, str]
"""A label and a sentence."""


def _numbers_of(options: Iterable[Option]) -> str:
    return listed(list(map(str, sorted(option.number for option in options))))


def decision_lines(proposal: Proposal) -> Iterator[Line]:
    """The recommended option and its reason, and what other options would save or cost."""
    choice = proposal.recommended
    if choice is None:
        yield "Recommended", "No option can be used."
        return
    chosen = choice.option
    yield "Recommended", f"Option {chosen.number} is the {_reason(choice, proposal)}."
    if queue := _queue_sentence(chosen, proposal.options):
        yield "Queue", queue
    if own := _own_job_sentence(chosen, proposal):
        yield "Own jobs", own
    if bold := choice.aggressive:
        sentence = _trade(bold, chosen, proposal)
        if not bold.starts_now:
            sentence += f" Its risk is the wait: {wait_text(bold)} ({bold.offer.wait.source})."
        yield "Aggressive", sentence
    cheapest = proposal.best[-1].option
    if cheapest not in (chosen, bold):
        yield "Cheaper", _trade(cheapest, chosen, proposal)


def _reason(choice: BestOption, proposal: Proposal) -> str:
    if sum(option.possible for option in proposal.options) == 1:
        return "only one that can be used"
    if choice.ties:
        better, unclear = "cheapest", "times"
        if choice.purpose == "cheapest":
            better, unclear = "fastest", "costs"
        if choice.is_close:
            better, unclear = "best", "times and costs"
        among = _numbers_of([choice.best, *choice.ties])
        return f"{better} of {among}, whose {unclear} are too close to call"
    purposes = [best.purpose for best in proposal.best if best.best is choice.option]
    if purposes:
        return f"{listed(purposes)} one"
    return "one with the smallest product of time and cost"


def _queue_sentence(chosen: Option, options: Iterable[Option]) -> str:
    """What a start now saves, or a wait; empty if neither does."""
    others = [
        option
        for option in options
        if option.possible and option.starts_now is not chosen.starts_now
    ]
    other = min(others, key=lambda option: option.total[1], default=None)
    if other is None or other.total[1] <= chosen.total[1]:
        return ""
    saved = duration(other.total[1] - chosen.total[1])
    start, against = "starts now", f"waiting for option {other.number}"
    if not chosen.starts_now:
        start, against = f"waits {wait_text(chosen)}", f"option {other.number}, which starts now"
    return f"Option {chosen.number} {start} and saves {saved} against {against}."


def _own_job_sentence(chosen: Option, proposal: Proposal) -> str:
    """What cancelling an own job in the queue would change; empty if that is little."""
    possible = [option for option in proposal.options if option.possible]
    option = min(possible, key=lambda option: option.end_in_place(proposal.at))
    place = option.offer.place
    end = option.end_in_place(proposal.at)
    now = chosen.total[1]
    if place is None or math.isinf(now) or end > (1 - WORTH) * now:
        return ""
    saved = duration(now - end)
    start = duration(max(0.0, place.start - proposal.at))
    return (
        f"Your job {place.id} waits for as much, and starts in {start}. If you cancel it (scancel"
        f" {place.id}), option {option.number} could take its place, and end {saved} earlier than"
        f" option {chosen.number} does now."
    )


def _trade(option: Option, chosen: Option, proposal: Proposal) -> str:
    """What an option saves or takes beside the chosen one."""
    spent = spent_in(proposal.options)
    times = spent(option)[1] / max(spent(chosen)[1], 1e-9)
    saved = chosen.total[1] - option.total[1]
    gain = f"could save {duration(saved)}"
    if saved < 0:
        gain = f"takes {duration(-saved)} longer"
    workers = f"{plural(option.offer.nodes, 'node')}, {option.offer.workers} {option.offer.device}"
    return f"Option {option.number} ({workers}) {gain} at {amount(times)} x the cost."


def where(offer: Offer) -> str:
    """The profile and the partition of an offer."""
    return " ".join(filter(None, (offer.profile, offer.partition)))


def wait_text(option: Option) -> str:
    """The expected wait of an option."""
    if option.starts_now:
        return "none"
    if math.isinf(option.wait[1]):
        return "not known"
    return duration(option.wait[1])


def proposal_tables(proposal: Proposal) -> Iterator[Table]:
    """The options that can be used, the trainings, and what was decided.

    The last one also has the options that cannot be used, where the numbers come from, what the run
    needs, and the commands.
    """
    title = f"Plan of {proposal.name} (nothing is submitted)"
    if proposal.is_finished:
        yield Table((), (("state", "finished: nothing is left to do"),), title)
        return
    options = [option for option in proposal.options if option.possible]
    unit = "GPU"
    if any(option.offer.device == "cpu" for option in options):
        unit = "worker"
    labels = {option: ", ".join(labels_of(option, proposal)) for option in options}
    rows = [option_row(option, unit) | {"reason": labels[option]} for option in options]
    yield Table.of(rows, title)
    trained = [option for option in options if option.pace]
    if trained:
        yield Table.of([pace_row(option, unit) for option in trained])
    commands = [
        f"{option.number}: {proposal.command(option)}" for option in options if labels[option]
    ]
    if commands and not proposal.request.is_program:
        commands.append("Add --submit NUMBER to run an option.")
    lines = list(decision_lines(proposal))
    most = max(option.offer.workers for option in proposal.options)
    phases = proposal.work.phases
    lines += [
        ("Search", f"more than {phase.at_once} workers bring no earlier answer")
        for phase in phases
        if phase.name == "search" and phase.at_once and most > phase.at_once
    ]
    if sum(bool(phase.steps) for phase in phases) > 1:
        lines.append(("Training", "batch, times and value are those of the longest one"))
    lines += sources(proposal.options, proposal.at)
    lines += needs(proposal.work, proposal.request)
    yield Table((), lines, notes=commands)


def option_row(option: Option, unit: str) -> dict[str, str]:
    """The times and costs of an option, by column."""
    offer = option.offer
    row = {
        "#": str(option.number),
        "where": where(offer),
        "nodes": f"{offer.nodes:,}",
        f"{unit}s": f"{offer.workers} {offer.device}",
        "free": "?",
        "wait": wait_text(option),
        "run": duration(option.run.expected),
        "total": bounded(option.total),
        f"{unit} hours": "",
        "cost": "",
        "success": "",
    }
    if offer.free is not None:
        row["free"] = f"{offer.free:,}"
    if option.jobs > 1:
        row["run"] += f" in {option.jobs} jobs"
    row[f"{unit} hours" if option.cost is None else "cost"] = amount(spent_in([option])(option)[1])
    if offer.success:
        row["success"] = f"{offer.success.chance[1]:.0%}"
    return row


def pace_row(option: Option, unit: str) -> dict[str, str]:
    """The batch of a training, its time, and its value."""
    hour = f"a {unit} hour buys"
    row = dict.fromkeys(("#", "batch", "time per epoch", "time per step", hour), "")
    row["#"] = str(option.number)
    pace = option.pace
    assert pace
    if pace.batch:
        row["batch"] = f"{amount(pace.batch)} ({amount(pace.batch / pace.ranks)} per {unit})"
    if "epoch" in pace.seconds:
        row["time per epoch"] = bounded(pace.seconds["epoch"])
    elif "step" in pace.seconds:
        row["time per step"] = bounded(pace.seconds["step"], lambda time: f"{amount(time)} s")
    # samples can be compared best, then epochs
    for name in ("sample", "epoch", "step"):
        if name in pace.seconds:
            count = 3600 / (option.offer.workers * pace.seconds[name][1])
            row[hour] = f"{amount(count)} {name}s"
            break
    return row


def labels_of(option: Option, proposal: Proposal) -> list[str]:
    """What an option is best in."""
    labels = [best.purpose for best in proposal.best if best.best is option]
    choice = proposal.recommended
    if choice and option is choice.option:
        labels.append("recommended")
    if choice and option is choice.aggressive:
        labels.append("aggressive")
    return labels


def sources(options: Iterable[Option], now: float) -> Iterator[Line]:
    """Why options cannot be used, and where the numbers of others come from."""
    numbers = defaultdict[Line, list[Option]](list)
    for option in options:
        offer = option.offer
        if not option.possible:
            problems = "; ".join(option.problems)
            numbers["Not possible", f"{where(offer)}: {problems}"].append(option)
            continue
        age = ""
        if option.run.at is not None:
            age = f", {duration(now - option.run.at)} ago"
        numbers["Run", f"{option.run.source}{age}"].append(option)
        numbers["Wait", offer.wait.source].append(option)
        if offer.success:
            numbers["Success", str(offer.success)].append(option)
    for (label, text), of_text in sorted(numbers.items(), key=lambda item: item[0][0]):
        yield label, f"{_numbers_of(of_text)}: {text}"


def needs(work: Work, request: PlanRequest) -> Iterator[Line]:
    """What the work needs; of a program it is not known."""
    if request.times:
        yield "Units", f"{work.units} times what `bench` has timed"
        if not request.is_program:
            yield "Not counted", "measuring and scoring the checkpoints, whose number is not known"
        return
    yield "Units", f"{work.units:,}"
    gpu = f"{work.vram_gib:.1f} GiB on its GPU"
    yield "Memory", f"{work.host_gib:.1f} GiB of a worker, {gpu} (estimated)"
    yield "Disk", f"{size_text(work.disk_bytes)} of results"
    if work.texts:
        yield "Texts", work.texts
    if work.missing:
        yield "Missing", f"{', '.join(work.missing)}, not on this machine"


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
        "aggressive": chosen and chosen.aggressive and chosen.aggressive.number,
        "reason": " ".join(sentence for _, sentence in decision_lines(proposal)),
    }
