"""Every reader of files and outputs that users, other programs or sites write, each with a valid
corpus.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save

from daskmetrics import config, store
from daskmetrics.checkpoints import locations, shipped
from daskmetrics.cluster.slurm import commands as commands
from daskmetrics.cluster.slurm.allocation import parse_allocation
from daskmetrics.cluster.slurm.partitions import parse_partitions
from daskmetrics.cluster.slurm.script import LaunchInfo, output, pools, script
from daskmetrics.config import Model, loading
from daskmetrics.core.corpus import prompts
from daskmetrics.domain.events import UnitsRetried, is_finished, records, to_json
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored
from daskmetrics.execution import journal as journal
from daskmetrics.execution.map.function import read_items
from daskmetrics.tasks.file import file_task
from tests.events import attempt_failed, metric, planned, started, task
from tests.stored import read_block

Files = Mapping[str, bytes]
SITES = Path(__file__).parents[1] / "cluster" / "slurm" / "sites"


@dataclass(frozen=True)
class Reader:
    """A reader, and valid files for it. Only the files ``changed`` are mutated, before they are
    packed.
    """

    read: Callable[[Path], object]  # of the folder with the files
    files: Files
    changed: tuple[str, ...] = ()  # all by default
    pack: Callable[[bytes], bytes] = field(default=lambda content: content)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.changed or tuple(self.files)


def of_file(read: Callable[[Path], object], name: str, content: bytes, **options: Any) -> Reader:
    """The reader of one file."""
    return Reader(lambda folder: read(folder / name), {name: content}, **options)


def write_files(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


NUMBERS = range(24)
TEXTS = [{"text": f'one, "two"\n{i} é', "label": "xy"[i % 2], "rate": str(i / 8)} for i in NUMBERS]
GRADED = [{"text": f"one {i} é", "score": i / 8} for i in NUMBERS]
TAGGED = [{"text": f"one {i} é", "label": ("a;b", "b; c", "c")[i % 3]} for i in NUMBERS]
LISTS = [{**row, "label": row["label"].split(";")} for row in TAGGED]
PAIRS = [{"text1": f"one {i}", "text2": f"two {i}", "label": i % 2} for i in NUMBERS]
JUDGED = [
    {"query": f"one {i // 3}", "document": f"two {i}", "relevance": int(i % 3 > 0)} for i in NUMBERS
]


def as_csv(rows: list[dict[str, Any]], separator: str = ",") -> bytes:
    return pd.DataFrame(rows).to_csv(index=False, sep=separator).encode()


def as_json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame(rows).to_parquet(buffer)
    return buffer.getvalue()


CONFIG = b"""name: x
models:
- name: a
  train: {width: 16, depth: 1}
- {source: ./m, revisions: every 8 to 64}
tasks: ["stdlib:order", "file:x.csv(text=body)"]
search: {budget: 0.1, policy: race, weights: {order: 2.0}}
readouts: {pooling: [mean, last], dimensions: [all, 8]}
cluster: {kind: slurm, partition: gpu, memory: 16GiB, walltime: "12:00:00", exports: {A: b}}
"""


def read_labelled(path: Path, kind: str = "") -> object:
    """The texts; no label or grade is what says that there is none, whatever the file says."""
    options = {"drop": "missing"}
    if kind:
        options["kind"] = kind
    task = file_task(str(path), options)
    examples = task.whole()
    assert np.isfinite(examples.labels).all()
    if examples.queries:
        assert all(relevance >= 0 for *_, relevance in examples.judgements)
    else:
        assert len(examples.labels) == len(examples.items)
    if kind:
        assert examples.label_matrix.any(axis=1).all()
    return task.texts(), task.warnings


def journal_lines() -> list[dict[str, Any]]:
    value = Scored(0.5, 0.1, n=9, encode_seconds=0.1)
    entries = (
        planned([Suite("m", ("step1",), (0, 1), 1)], [task("order", "sts")]),
        started(),
        Record("a", "m@step1/0:order", "score", "ok", value=value, seconds=1.0),
        attempt_failed("b"),
        Record("b", "m@step1/1:order", "score", "error", reason="no"),
        UnitsRetried(["b"]),
    )
    return [{"type": "format", "number": 1}, *map(to_json, entries)]


def sealed(content: bytes) -> bytes:
    """The lines of a journal with valid checksums, as somebody writes them who knows the format."""
    lines, checksum = [], 0
    for text in content.split(b"\n"):
        try:
            lines.append(journal.encode(dict(json.loads(text)), checksum))
        except (ValueError, TypeError, RecursionError):
            lines.append(b"00000000 " + text + b"\n")
            break
        checksum = int(lines[-1][:8], 16)
    return b"".join(lines)


JOURNAL = "\n".join(map(json.dumps, journal_lines())).encode()


def read_journal(path: Path) -> object:
    found = journal.scan(path)
    return is_finished(found.entries), list(records(found.entries))


SUITES = (Suite("a", ("step0", "step1"), (0, 1), 1),)


def store_files(folder: Path) -> dict[str, bytes]:
    plan = planned(SUITES, [task("t")], [metric("m1"), metric("m2")])
    path = folder / "store.zarr"
    store.create(path, plan, {})
    values = np.arange(4.0).reshape(2, 2)
    block = store.Block(values, values, np.ones((2, 2), np.uint8))
    store.write(path, "metrics", Checkpoint("a", "step1"), block)
    files = filter(Path.is_file, path.rglob("*"))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def read_store(folder: Path) -> object:
    path = folder / "store.zarr"
    tree = store.open_tree(path)
    block = read_block(path, "metrics", Checkpoint("a", "step1"))
    return block, store.files_of(path), dict(tree.attrs)


NETWORK = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 100}
NETWORK |= {"auto_map": None, "num_nextn_predict_layers": 0}
SHIPPED = "sentence_transformers.models"
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": f"{SHIPPED}.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{SHIPPED}.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{SHIPPED}.Normalize"},
]


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def model_files() -> dict[str, bytes]:
    weights = {
        "embeddings.weight": np.ones((100, 8), np.float32),
        "layer.0.bias": np.zeros(8, np.float16),
        "layer.1.bias": np.zeros(8, np.float16),
    }
    described = {
        "config.json": NETWORK,
        "model.safetensors.index.json": {"weight_map": dict.fromkeys(weights, "model.safetensors")},
        "tokenizer.json": {"model": {"vocab": {"a": 0, "b": 99}}},
        "tokenizer_config.json": {"model_max_length": 512, "padding_side": "left"},
        "modules.json": MODULES,
        "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": {
            "prompts": {"query": "q: "},
            "similarity_fn_name": "cosine",
        },
        "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False},
    }
    files = {name: as_json(value) for name, value in described.items()}
    return {**files, "model.safetensors": save(weights)}


def read_model(folder: Path) -> object:
    found = locations.locate(Model(name="m", source=str(folder)))
    return found, shipped.read(Path(found.locations[0].path))


ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "base", "lora_alpha": 16, "r": 4}
ADAPTER |= {"alpha_pattern": {"q": 8}, "target_modules": ["q"]}
TUNED = "tuned/adapter_config.json", "tuned/adapter_model.safetensors"


def read_adapter(folder: Path) -> object:
    model = Model(name="m", source=str(folder / "tuned"), base=str(folder / "base"))
    return locations.locate(model)


def adapter_files() -> dict[str, bytes]:
    names = "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"
    base = {f"base/{name}": model_files()[name] for name in names}
    weights = save({"q.lora_A.weight": np.ones((4, 8), np.float32)})
    return {**base, **dict(zip(TUNED, (as_json(ADAPTER), weights), strict=True))}


def read_slurm(folder: Path) -> object:
    printed = {
        path.stem: path.read_text(encoding="utf-8", errors="replace")
        for path in folder.glob("*.txt")
    }
    jobs = commands.parse_queue(printed["queue"])
    partitions = parse_partitions(printed["partitions"], printed["nodes"])
    return (
        commands.summary(jobs),
        [(job.pending, job.alive) for job in jobs],
        commands.parse_job_id(printed["submitted"]),
        commands.parse_rehearsal(printed["rehearsal"]),
        commands.parse_job_state(printed["state"]),
        parse_allocation("7", printed["allocation"]),
        [partition.gpus for partition in partitions],
    )


def slurm_files() -> dict[str, bytes]:
    state = "JobId=7 JobState=PENDING Reason=Priority StartTime=2030-01-01T14:05:00 ExitCode=0:0"
    allocation = "JobId=7 NumNodes=2 NumCPUs=8 TRES=cpu=8,node=2,gres/gpu=4 JOB_GRES=gpu:l40s:4"
    printed = {
        "queue": "7|RUNNING|2030-01-01T14:05:00|1-00:10:00|g[0-3]|None\n8|PENDING|N/A|1:00||x",
        "submitted": "your project has 3 hours left\n4711;alpha\n",
        "rehearsal": "sbatch: Job 9 to start at 2030-01-01T14:05:00 using 8 processors on nodes g1"
        " in partition p",
        "state": state,
        "allocation": f"{allocation} EndTime=2030-01-01T14:05:00",
    }
    recorded = {f"{name}.txt": (SITES / f"23.11-{name}.txt") for name in ("partitions", "nodes")}
    return {
        **{f"{name}.txt": text.encode() for name, text in printed.items()},
        **{name: path.read_bytes() for name, path in recorded.items()},
    }


PROFILE = b"""run: my run
logs: /data/logs
partition: gpu
account: abc
gpu_type: a100
directives: [--exclusive]
prologue: [module load cuda]
exports: {A: b c}
"""


def read_script(path: Path) -> object:
    keys = loading._read(path)
    run, logs = (str(keys.pop(name, "x")) for name in ("run", "logs"))
    profile = config.cluster({"kind": "slurm", **keys})
    lines = [*script(pools(profile)[0], LaunchInfo(run=run)).split("\n"), output(logs, "%j.log")]
    assert all(line.isprintable() for line in lines)
    return lines


def readers(scratch: Path) -> dict[str, Reader]:
    """All readers by name; ``scratch`` is an empty folder."""
    prompt_lines = b"".join(b"prompt %d of \xc3\xa9\r\n" % i for i in range(20))
    several = partial(read_labelled, kind="multilabel_classification")
    zipped = gzip.compress(as_csv(TEXTS), mtime=0)
    forged = "journal.jsonl", JOURNAL
    stored = store_files(scratch)
    metadata = tuple(name for name in stored if name.endswith("zarr.json"))
    chunks = tuple(name for name in stored if name not in metadata)
    return {
        "configuration": of_file(
            lambda path: config.load(path, ["search.window=1"]).as_dict(), "x.yaml", CONFIG
        ),
        "items (CSV)": of_file(read_items, "x.csv", as_csv(TEXTS)),
        "items (JSON Lines)": of_file(read_items, "x.jsonl", as_json_lines(TEXTS)),
        "texts and labels (CSV)": of_file(read_labelled, "x.csv", as_csv(TEXTS)),
        "texts and labels (JSON Lines)": of_file(read_labelled, "x.jsonl", as_json_lines(TEXTS)),
        "texts and grades (semicolons)": of_file(read_labelled, "x.csv", as_csv(GRADED, ";")),
        "texts and several labels": of_file(several, "x.csv", as_csv(TAGGED)),
        "texts and several labels (Parquet)": of_file(several, "x.parquet", as_parquet(LISTS)),
        "pairs (tabs)": of_file(read_labelled, "x.tsv", as_csv(PAIRS, "\t")),
        "queries and documents (JSON Lines)": of_file(
            read_labelled, "x.jsonl", as_json_lines(JUDGED)
        ),
        "prompts": of_file(lambda path: prompts(str(path), 4, 0), "x.txt", prompt_lines),
        "texts and labels (gzip)": of_file(read_labelled, "x.csv.gz", zipped),
        "texts and labels (in gzip)": of_file(
            read_labelled, "x.csv.gz", as_csv(TEXTS), pack=gzip.compress
        ),
        "journal": of_file(read_journal, "journal.jsonl", sealed(JOURNAL)),
        "journal (forged)": of_file(read_journal, *forged, pack=sealed),
        "store metadata": Reader(read_store, stored, metadata),
        "store chunks": Reader(read_store, stored, chunks),
        "model folder": Reader(read_model, model_files()),
        "adapter": Reader(read_adapter, adapter_files(), TUNED),
        "output of Slurm": Reader(read_slurm, slurm_files()),
        "names in job scripts": of_file(read_script, "x.yaml", PROFILE),
    }
