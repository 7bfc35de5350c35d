"""Digests of what runs decided, scored and stored: python ci/digest.py RUN [RUN ...]

Two runs of one configuration on one machine print the same lines, whatever was renamed or moved in
between. The journal and the store are read without the package, so that runs of different versions
can be compared.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import zarr


def digests(run: Path) -> dict[str, str]:
    """A digest of each of: decisions in their order, scores, recommendation, and every array of the
    store.
    """
    entries = [
        json.loads(line[9:])
        for line in (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    scores = {
        e["name"]: e["value"]
        for e in entries
        if e.get("kind") == "score" and e.get("status") == "ok"
    }
    decisions = [
        e["name"]
        for e in entries
        if ":" in e.get("name", "") and "status" not in e and "fault" not in e
    ]
    kept = {
        name: [value["score"], value["stderr"], value["n"]]
        for name, value in sorted(scores.items())
    }
    ends = (e.get("recommendation", e) for e in reversed(entries))
    best = next(dict(end["best"]) for end in ends if "best" in end)
    best.pop("interval", None)  # follows from the others
    best["arm"].pop("readout", None)
    arrays = hashlib.sha256()
    count = 0
    for name, array in sorted(
        zarr.open_group(run / "store.zarr", mode="r").members(max_depth=None)
    ):
        if isinstance(array, zarr.Array):
            values = np.asarray(array[...])
            content = (
                values.tobytes()
                if values.dtype.kind != "O"
                else json.dumps(values.tolist()).encode()
            )
            arrays.update(f"{name} {values.dtype} {values.shape}".encode() + content)
            count += 1
    return {
        f"{len(decisions)} decisions": _digest(decisions),
        f"{len(kept)} scores": _digest(kept),
        "recommendation": _digest(best),
        f"{count} arrays": arrays.hexdigest()[:16],
    }


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


if __name__ == "__main__":
    found = [digests(Path(run)) for run in sys.argv[1:]]
    for name in found[0]:
        print(f"{name:<16}", *(each.get(name, "-") for each in found))
    sys.exit(len({json.dumps(each) for each in found}) > 1)
