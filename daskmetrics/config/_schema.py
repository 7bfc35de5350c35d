"""The sections of a configuration: frozen and validated, unknown keys refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from daskmetrics.core._times import parse_walltime

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
WEEK = 7 * 86400.0


def _plain_name(name: str) -> str:
    # names become folders, Slurm job names and lines of job scripts
    if not _NAME.fullmatch(name):
        raise ValueError(
            "must be letters, digits, '.', '_' or '-', start with a letter or digit, at most 96 characters"
        )
    return name


Name = Annotated[str, AfterValidator(_plain_name)]


def _matching(pattern: str, meaning: str) -> Any:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {meaning}")
        return text

    return AfterValidator(check)


def _place(text: str) -> str:
    if any(len(part.encode()) > 255 for part in text.split("/")) or len(text) > 1024:
        raise ValueError("must be a path or a name of at most 1024 characters")
    return text


def _one_line(text: str) -> str:
    if not text.isprintable() or len(text) > 4096:
        raise ValueError("must be one printable line of at most 4096 characters")
    return text


# all of these become parts of lines of job scripts, or of paths
Line = Annotated[str, AfterValidator(_one_line)]
Word = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9._:,@+-]{0,95}", "one word of letters, digits and ._:,@+-")]
Size = Annotated[str, _matching(r"\d+(\.\d+)? ?[kKMGTP]?i?B?", "a size such as 16GiB")]
Place = Annotated[Line, AfterValidator(_place)]
Revision = Annotated[
    Line, _matching(r"(?![/~-])(?!.*\.\.).{1,250}", "a name, without '..' and not beginning with '/', '~' or '-'")
]


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_switches(cls, data: Any) -> Any:
        """YAML 1.1 turns words into switches, which would then count as 0 and 1."""
        for name, value in data.items() if isinstance(data, Mapping) else ():
            field = cls.model_fields.get(name) if isinstance(name, str) else None
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise ValueError(f"'{name}' is {value}: YAML reads on, off, yes and no so. Write a number, or quotes")
        return data


class Recipe(Section):
    """How a suite is trained: everything that decides its weights; equal recipes give equal suites.

    A step learns from ``batch x accumulate x ranks`` sequences, whichever and however many processes compute it.
    """

    size: str | None = Field(None, description="a shape by the name that Pythia gave it, such as 70m")
    width: int = Field(64, ge=8, description="hidden size")
    depth: int = Field(4, ge=1, description="number of transformer blocks")
    heads: int = Field(2, ge=1)
    context: int = Field(64, ge=8, description="tokens per training sequence")
    vocabulary: int = Field(1024, ge=300, description="size of the byte-level BPE")
    tokenizer: Place | None = Field(None, description="folder of a tokenizer, instead of one fitted to the corpus")
    init_from: Place | None = Field(None, description="folder of a model to go on from, with its shape and tokenizer")
    objective: Literal["next-token", "classification"] = "next-token"
    corpus: Place = Field("stdlib", description="'stdlib', a .txt, .jsonl, .csv or .parquet file, or a folder of them")
    text: str = Field("text", description="column of the texts")
    label: str = Field("label", description="column of the classes, for classification")
    ranks: int = Field(1, ge=1, description="processes that train together, one per worker; fewer will do")
    batch: int = Field(8, ge=1, description="sequences per rank and pass")
    accumulate: int = Field(1, ge=1, description="passes per step")
    steps: int = Field(512, ge=1, description="optimizer steps")
    checkpoints: Literal["log"] | Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=0)], ...] = Field(
        "log", description="steps that are saved: 0, 1, 2, 4, 8, ..., or every so many, or a list; the last one always"
    )
    learning_rate: float = Field(1e-2, gt=0)
    scale_learning_rate: Literal["none", "linear", "sqrt"] = Field("none", description="with the number of ranks")
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = Field(1 / 16, ge=0, lt=1, description="share of the steps in which the rate rises")
    floor: float = Field(0.1, ge=0, le=1, description="share of the rate that is left at the end")
    weight_decay: float = Field(0.1, ge=0)
    clip: float = Field(1.0, ge=0, description="greatest norm of the gradient; 0 does not clip")
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    activation_checkpointing: bool = Field(False, description="compute activations twice instead of keeping them")
    compile: bool = Field(False, description="by torch.compile; it needs a C++ compiler")
    threads: int = Field(1, ge=1, description="CPU threads per rank, on which the last bits of sums depend")
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _shape_of_size(cls, data: Any) -> Any:
        size = data.get("size") if isinstance(data, Mapping) else None
        if not isinstance(size, str):
            return data
        if size.removeprefix("pythia-") not in SIZES:
            raise ValueError(f"unknown size '{size[:40]}'; valid: {', '.join(SIZES)}")
        width, depth, heads = SIZES[size.removeprefix("pythia-")]
        return {"width": width, "depth": depth, "heads": heads, **data}

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by {self.heads} heads")
        if self.objective == "classification" and self.corpus == "stdlib":
            raise ValueError("classification needs a 'corpus' with labels: a .jsonl, .csv or .parquet file")
        if isinstance(self.checkpoints, tuple) and any(step > self.steps for step in self.checkpoints):
            raise ValueError(f"checkpoints {max(self.checkpoints)} lie beyond the {self.steps} steps")
        if self.init_from and self.tokenizer:
            raise ValueError("a model to go on from has its tokenizer: leave out 'tokenizer'")
        return self


# width, depth, heads of the Pythia suite (Biderman et al., 2023, table 1; the two smallest from their model cards)
SIZES: Mapping[str, tuple[int, int, int]] = {
    "14m": (128, 6, 4),
    "31m": (256, 6, 8),
    "70m": (512, 6, 8),
    "160m": (768, 12, 12),
    "410m": (1024, 24, 16),
    "1b": (2048, 16, 8),
    "1.4b": (2048, 24, 16),
    "2.8b": (2560, 32, 32),
    "6.9b": (4096, 32, 32),
    "12b": (5120, 36, 40),
}


class Gang(Section):
    """How the processes that train a suite together are run; nothing here decides its weights."""

    folder: Place | None = Field(None, description="where suites are kept, by name; by default in the cache, by key")
    timeout: float = Field(60.0, gt=0, description="seconds after which a silent rank is given up")
    patience: float = Field(60.0, ge=0, description="seconds to wait for lacking ranks before going on with fewer")
    restarts: int = Field(3, ge=0, description="failures in a row, without a step taken between them")
    save_every: int = Field(100, ge=1, description="steps from one resume state to the next")
    loaders: Literal["measured"] | Annotated[int, Field(ge=0)] = Field("measured", description="processes per rank")
    backend: Literal["auto", "gloo", "nccl"] = "auto"
    interface: Word | None = Field(None, description="network interface of the ranks; by default the cluster's")
    environment: Mapping[
        Annotated[str, _matching(r"(NCCL|GLOO|TORCH|CUDA|OMP|UCX)_[A-Z0-9_]+", "a NCCL_... name")], Line
    ] = Field({}, description="variables of the ranks, such as NCCL_IB_HCA")


class Model(Section):
    """One suite: where its checkpoints are (or how to train them), and which of them are compared."""

    name: Name
    source: Place | None = Field(
        None, description="a folder with one sub-folder per revision, one model folder, or a hub id"
    )
    train: Recipe | None = None
    revisions: Revision | tuple[Revision, ...] = "all"
    layers: Literal["all", "blocks"] | tuple[int, ...] = Field("all", description="'blocks' leaves out layer 0")
    depth: int | None = Field(None, ge=1, description="number of blocks; needed for a hub id that is not cached")
    width: int | None = Field(None, ge=1, description="hidden size; likewise")
    pickled: bool = Field(False, description="load pickled weights (.bin) where there are no safetensors")

    @model_validator(mode="after")
    def _one_origin(self) -> Model:
        if (self.source is None) == (self.train is None):
            raise ValueError(f"model '{self.name}' needs either 'source' or 'train'")
        return self


class Corpus(Section):
    """The texts whose representations are measured."""

    source: Place = Field("stdlib", description="'stdlib', a text file with one prompt per line, or 'task:NAME'")
    prompts: int = Field(256, ge=2, description="number of prompts, drawn with the run's seed")


class Protocol(Section):
    """Everything that decides which vector stands for a text; part of every key and stored beside every number.

    ``state_norm`` says how a layer is read: ``raw`` as the block leaves it, ``final_ln`` after the model's final
    layer norm (what a model truncated at this layer would give), ``hidden_states`` as transformers returns it (raw,
    except for the last layer). Presets: ``corrected`` and ``paper``, as in "Layer by Layer" (Skean et al., 2025).
    """

    pooling: Literal["mean", "last", "cls"] = "mean"
    padding: Literal["right", "left"] = "right"
    max_length: int = Field(256, ge=2)
    state_norm: Literal["raw", "final_ln", "hidden_states"] = "final_ln"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_tokens: int = Field(1024, ge=1, description="padded tokens per batch; texts are sorted by length")


PRESETS: Mapping[str, Protocol] = {
    "corrected": Protocol(),
    "paper": Protocol(padding="left", max_length=2048, state_norm="hidden_states"),
}


class Search(Section):
    """How task evaluations are chosen and when to stop."""

    policy: str = Field("race", description="a policy's name, or 'package.module:function'")
    budget: float = Field(0.3, gt=0, le=1, description="share of the cost of evaluating every cell")
    cells: int | None = Field(None, ge=1, description="cells at most")
    gpu_hours: float | None = Field(None, gt=0, description="assumed hours of workers at most")
    wall_hours: float | None = Field(None, gt=0, description="hours after which no further cell is asked for")
    confidence: float | None = Field(None, gt=0, lt=1, description="stop when this sure of being `within` of the best")
    within: float = Field(0.01, gt=0, lt=1, description="share of the best arm's mean score")
    reward: Literal["zscore", "mean", "running", "rank", "harmonic", "robust"] = Field(
        "zscore",
        description="against the baseline checkpoint's layers, raw, against all scores seen, their ranks, or so that "
        "tasks are averaged harmonically or robustly",
    )
    objective: str = Field("all", description="what the best arm is best at: all tasks, one kind of task, or one task")
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        {}, description="of tasks in the objective, by name; 1 where not given"
    )
    seed: int | None = Field(None, description="of the policy's own chances; by default the run's")
    baseline: str | None = Field(None, description="MODEL@REVISION; by default the last checkpoint of the last model")
    device: Literal["cpu", "gpu"] = Field("cpu", description="whose speed is assumed where costs are weighed")
    window: int | None = Field(
        None,
        ge=1,
        description="decisions that may be open at once; by default 8, or the workers, if they are more",
    )
    free_running: bool = Field(False, description="decide on whatever has arrived: quicker, and not repeatable")
    learn_costs: bool = Field(False, description="correct assumed costs by measured seconds, which differ between runs")


def _clock(walltime: Any) -> Any:
    if isinstance(walltime, int):  # YAML 1.1 reads 12:30:00 as 45000
        raise ValueError("write a time in quotes, for instance '12:30:00'")
    return walltime


def _a_time(walltime: str) -> str:
    parse_walltime(walltime)
    return walltime


def _as_text(word: Any) -> Any:
    # an account may be a number, and YAML and the environment read it so
    return str(word) if type(word) is int else word


Walltime = Annotated[str, BeforeValidator(_clock), AfterValidator(_a_time)]
Asked = Annotated[Word, BeforeValidator(_as_text)]
# what Slurm combines features with: a100&nvlink, [rack1|rack2], !old
Constraint = Annotated[
    Line, _matching(r"[A-Za-z0-9._:,@+&|*()\[\]!-]{1,200}", "features such as 'a100' or 'a100|h100'")
]
Folder = Annotated[Place, _matching(r"[^\s%]+", "a path without spaces and without %")]
Directive = Annotated[Line, _matching(r"--?[A-Za-z].*", "an option of sbatch such as '--exclusive'")]
Variable = Annotated[str, _matching(r"[A-Za-z_][A-Za-z0-9_]{0,95}", "the name of a variable")]


class Pool(Section):
    """Jobs beside the main ones, without GPUs, for scoring; where a key is left out the main jobs' counts."""

    workers: int = Field(2, ge=1)
    fewest: int | None = Field(None, ge=1, description="with it their number follows the work, up to `workers`")
    threads: int = Field(1, ge=1, description="CPU threads per worker")
    memory: Size | None = Field(None, description="per worker; by default not limited")
    partition: Asked | None = None
    account: Asked | None = None
    walltime: Walltime | None = None
    qos: Asked | None = Field(None, description="not that of the main jobs, which may stand for GPUs; likewise below")
    constraint: Constraint | None = None
    directives: tuple[Directive, ...] = ()
    max_jobs: int | None = Field(None, ge=1)


class Controller(Section):
    """The job in which `run --submit` drives a run; it needs neither a GPU nor torch."""

    partition: Asked | None = Field(None, description="by default the site's default one")
    account: Asked | None = Field(None, description="by default the workers'")
    qos: Asked | None = None
    walltime: Walltime = "1-00:00:00"
    cpus: int = Field(2, ge=1)
    memory: Size | None = Field("4GiB", description="null where a site forbids --mem")
    directives: tuple[Directive, ...] = Field((), description="further #SBATCH lines, without the prefix")


class Cluster(Section):
    """Where the work runs: a profile of this machine, a Slurm partition, a job that is there, a running scheduler."""

    kind: Literal["local", "slurm", "allocation", "existing"] = "local"
    workers: int = Field(2, ge=1)
    fewest: int | None = Field(None, ge=1, description="with it the number follows the work, up to `workers` (Slurm)")
    threads: int = Field(1, ge=1, description="CPU threads per worker")
    memory: Size | None = Field(None, description="per worker, for instance 16GiB; by default not limited")
    embeddings: Size = Field("1GiB", description="that a worker holds in memory; more go to the run's folder")
    address: str | None = Field(None, description="of a running scheduler, or a path to its scheduler file")
    partition: Asked | None = None
    account: Asked | None = None
    qos: Asked | None = None
    constraint: Constraint | None = Field(None, description="features that a node must have")
    walltime: Walltime = "04:00:00"
    gpus_per_job: int = Field(1, ge=0, description="one worker process each; the node's number makes whole-node jobs")
    gpus_per_node: int | None = Field(None, ge=1, description="what a node has: no job may ask for more")
    gpu_type: Word | None = None
    scoring: Pool | None = Field(None, description="CPU workers beside the GPU workers, which then never score")
    interface: Word | None = Field(None, description="network interface that nodes reach each other by, such as ib0")
    prologue: tuple[Line, ...] = Field((), description="lines of shell before the worker starts (modules, venv)")
    exports: dict[Variable, Line] = Field({}, description="environment variables of the workers, taken literally")
    directives: tuple[Directive, ...] = Field((), description="further #SBATCH lines, without the prefix")
    logs: Folder = Field("slurm-logs", description="a folder that the nodes share, for job logs and certificates")
    scratch: Folder | None = Field(None, description="a folder on each node for what workers write meanwhile")
    max_jobs: int | None = Field(None, ge=1, description="jobs in the queue at once, pending ones too")
    poll_seconds: float = Field(30.0, gt=0, description="between looks at the queue")
    failures: int = Field(5, ge=1, description="jobs that may fail one after the other before it stops")
    connect_within: float = Field(300.0, gt=0, description="seconds until the worker of a running job must be there")
    arrive_within: float | None = Field(
        None, gt=0, description="seconds until the first worker must be there; by default 600, with Slurm a week"
    )
    unit_minutes: float | None = Field(None, gt=0, description="after which an attempt at a unit is stopped")
    controller: Controller = Controller()

    @model_validator(mode="after")
    def _that_can_be(self) -> Cluster:
        for pool in (self, self.scoring):
            if pool and pool.fewest and pool.fewest > pool.workers:
                raise ValueError(f"fewest is {pool.fewest}, more than the {pool.workers} workers there are at most")
        if self.gpus_per_node and self.gpus_per_job > self.gpus_per_node:
            raise ValueError(f"gpus_per_job is {self.gpus_per_job}, but a node has {self.gpus_per_node}")
        return self

    @property
    def timeout(self) -> float | None:
        """Seconds that an attempt at a unit may take; None without end."""
        return 60 * self.unit_minutes if self.unit_minutes else None

    @property
    def device(self) -> str:
        """What its workers compute on: ``cpu``, or a kind of GPU."""
        return self.gpu_type or "gpu" if self.kind == "slurm" and self.gpus_per_job else "cpu"

    @property
    def patience(self) -> float:
        """Seconds that work may wait for a worker. In a queue it may be long, and what is wrong there is told."""
        return self.arrive_within or (WEEK if self.kind == "slurm" else 600.0)


class Config(Section):
    """One experiment."""

    name: Name
    seed: int = 0
    models: tuple[Model, ...] = Field(min_length=1)
    corpus: Corpus = Corpus()
    protocol: Protocol = Protocol()
    metrics: tuple[str, ...] = Field(("all",), min_length=1)
    keep_states: bool = Field(
        False, description="keep every prompt's vectors in states.zarr, in half precision, to add metrics later"
    )
    tasks: tuple[str, ...] = ()
    search: Search = Search()
    cluster: Cluster = Cluster()
    gang: Gang = Gang()

    @model_validator(mode="after")
    def _distinct_models(self) -> Config:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"model names must differ, got {', '.join(names)}")
        return self

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain JSON values, in the order of its fields."""
        return self.model_dump(mode="json")
