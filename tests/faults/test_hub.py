"""A run whose checkpoints come from a hub with every fault: what is measured, what is recorded,
what the user sees.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from tests.cli.calling import start
from tests.hub import Fault, Hub, commit, serve
from tests.models.architectures import build

TOKEN = "hf_averysecrettoken"
SUITE = ["well", "broken", "damaged", "lost", "bad"]


def of(hub: Hub, revision: str, **fault: object) -> Fault:
    """A fault of the weights of one revision."""
    files = hub.repositories["org/suite"][revision]
    return Fault(f"{commit(files)}/model.safetensors", **fault)  # type: ignore[arg-type]


def test_a_fault_of_the_hub_is_a_status_of_its_checkpoint_alone(
    tmp_path: Path, minilm: Path
) -> None:
    home, branches = tmp_path / "home", {}
    home.mkdir()
    for seed, name in enumerate(SUITE):
        folder = build("gpt_neox", tmp_path / name, minilm, seed)
        branches[name] = {file.name: file for file in folder.iterdir()}
    model = {"name": "m", "source": "org/suite", "revisions": SUITE, "depth": 3, "width": 32}
    models = [{**model, "pooling": "mean", "disk": "11MB"}]
    plain = {"models": models, "corpus": {"prompts": 4}, "metrics": ["effective_rank"]}
    (home / "config.yaml").write_text(yaml.safe_dump({"name": "x", **plain}))
    (home / "token").write_text(TOKEN)
    with serve({"org/suite": branches}) as hub:
        hub.token, hub.redirects = TOKEN, False
        hub.faults += [
            of(hub, "broken", times=2, status=503),
            of(hub, "damaged", flip=True),
            of(hub, "lost", times=99, status=404),
            of(hub, "bad", times=99, flip=True),
        ]
        done = start(home, "run config.yaml", **hub.environment(home))
    said = " ".join((done.stdout + done.stderr).split())
    entries = read(home / "runs" / "x" / "journal.jsonl")
    records = {entry.name: entry for entry in entries if isinstance(entry, Record)}
    assert {f"m@{name}" for name in SUITE} <= set(records), said
    statuses = [records[f"m@{name}"].status for name in SUITE]
    assert statuses == ["ok", "ok", "ok", "error", "error"]
    reasons = {
        "lost": "model.safetensors of org/suite at",
        "bad": "hash is not the one that the hub",
    }
    for name, reason in reasons.items():
        assert reason in records[f"m@{name}"].reason
        assert f"measure m@{name}: error, DataError: " in said
    written = [path for path in home.rglob("*") if path.is_file() and path.name != "token"]
    assert TOKEN not in said
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]
