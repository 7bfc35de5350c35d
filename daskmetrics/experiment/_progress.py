"""What a record says on the user's screen while a run goes on."""

from __future__ import annotations

from daskmetrics.execution import Record


def record_text(record: Record) -> str:
    """A record in a few words: its name and its first values."""
    if not record.ok:
        return f"{record.name}  {record.status}"
    if record.kind == "train":
        return f"{record.name}  loss {record.value['loss']:.2f}"
    if record.kind in ("score", "fresh"):
        return f"{record.name}  {record.value['score']:.3f}"
    last = list(zip(record.value["names"], record.value["values"][-1], strict=True))
    return "  ".join([record.name, *(f"{name} {number:.3g}" for name, number in last[:2] if number is not None)])
