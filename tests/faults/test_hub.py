"""A run whose checkpoints come from a hub with every fault: what is measured, what is recorded,
what the user sees.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

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
    folders = {
        name: build("gpt_neox", tmp_path / name, minilm, seed) for seed, name in enumerate(SUITE)
    }
    branches = {
        name: {each.name: each for each in folder.iterdir()} for name, folder in folders.items()
    }
    model = {"name": "m", "source": "org/suite", "revisions": SUITE, "depth": 3, "width": 32}
    limited = {**model, "pooling": "mean", "disk": "11MB"}
    plain = {
        "name": "x",
        "models": [limited],
        "corpus": {"prompts": 4},
        "metrics": ["effective_rank"],
    }
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(yaml.safe_dump(plain))
    (home / "token").write_text(TOKEN)
    with serve({"org/suite": branches}) as hub:
        hub.token, hub.redirects = TOKEN, False
        hub.faults += [
            of(hub, "broken", times=2, status=503),
            of(hub, "damaged", flip=True),
            of(hub, "lost", times=99, status=404),
            of(hub, "bad", times=99, flip=True),
        ]
        command = [sys.executable, "-m", "daskmetrics", "run", "config.yaml"]
        done = subprocess.run(
            command,
            env=hub.environment(home),
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
    said = " ".join((done.stdout + done.stderr).split())
    lines = (home / "runs" / "x" / "journal.jsonl").read_text().splitlines()
    entries = [json.loads(line.partition(" ")[2]) for line in lines]
    records = {each["name"]: each for each in entries if each["type"] == "record"}
    assert {name: records[f"m@{name}"]["status"] for name in SUITE} == {
        **dict.fromkeys(SUITE[:3], "ok"),
        **dict.fromkeys(SUITE[3:], "error"),
    }
    for name, reason in (
        ("lost", "model.safetensors of org/suite at"),
        ("bad", "its hash is not the one that the hub lists"),
    ):
        assert (
            reason in records[f"m@{name}"]["reason"]
            and f"measure m@{name}: error, DataError: " in said
        )
    written = [path for path in home.rglob("*") if path.is_file() and path.name != "token"]
    assert TOKEN not in said and not [
        path for path in written if TOKEN.encode() in path.read_bytes()
    ]
