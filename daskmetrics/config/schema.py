"""The sections of an experiment: frozen and validated; an unknown key is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from daskmetrics.config._cluster import Cluster
from daskmetrics.config._readouts import Readouts
from daskmetrics.config._recipe import DDP, Recipe, Script, Training, is_script
from daskmetrics.config.section import (
    AS_LIST,
    DEEPEST,
    WIDEST,
    Duration,
    Name,
    Names,
    Revision,
    Section,
    Seed,
    Size,
    Source,
)

# fields of models with an encoder, and of all models
_OF_ENCODERS = {"encoder", "checkpoints", "items", "batch_size", "version"}
_OF_ALL = {"name", "revisions", "layers", "readouts"}

Pooling = Literal["as_shipped", "mean", "last", "cls"]


def name_of(source: str) -> str:
    """The name of what has none, from the last part of its source.

    >>> name_of("EleutherAI/pythia-70m"), name_of("./my model/"), name_of("é")
    ('pythia-70m', 'my-model', 'model')
    """
    path = Path(source)
    if source in (".", ".."):
        path = path.resolve()
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name)
    return plain.strip("._-")[:96] or "model"


class Model(Section):
    """One suite: where its checkpoints are, or how to train them.

    A source alone, such as ``models: [./out]``, stands for a model that is named after it.
    """

    name: Name
    """Name of the suite in every result; by default the last part of `source`.
    Example: `pythia-70m`
    """
    source: Source | None = None
    """A folder with one sub-folder per revision (`step1000`, or a trainer's `checkpoint-1000`), a
    folder of one model, or a hub id. A model needs either `source` or `train`.
    Example: `EleutherAI/pythia-70m`
    """
    base: Source | None = None
    """For a folder of LoRA adapters: the folder or hub id of their base model. By default the one
    that their `adapter_config.json` names.
    Example: `EleutherAI/pythia-70m`
    """
    train: Training | None = None
    """How to train the suite: see Recipe; or a program of one's own: see Script.
    Example: `{"width": 64, "depth": 4}`
    """
    encoder: str | None = None
    """A function of your own that reads items, `module.py:function` or `package.module:function`;
    see `daskmetrics.Encoder`.
    Example: `own.py:vit`
    """
    checkpoints: str | None = None
    """Of an encoder: a pattern of files or folders. Example: `out/*.pth`"""
    items: Literal["text", "path", "image", "audio", "array"] = "text"
    """What an encoder gets of each item."""
    batch_size: int = Field(32, ge=1, le=10**6)
    """Items that an encoder gets at most."""
    version: str | None = None
    """Of an encoder, in place of a hash of its code."""
    revisions: Revision | Annotated[tuple[Revision, ...], Field(min_length=1)] = "all"
    """Revisions to compare: a list of names, or a range: `all`, `log`, `every N`, each with an
    optional `to STEP`.
    Example: `every 1000 to 143000`
    """
    layers: Literal["all", "blocks"] | tuple[int | str, ...] = "all"
    """Layers to compare. Layer 0 is the embedding output; `blocks` leaves it out. Those of an
    encoder may have names.
    Example: `blocks`
    """
    depth: int | None = Field(None, ge=1, le=DEEPEST)
    """Number of blocks; needed for a hub id that is not in the local cache."""
    width: int | None = Field(None, ge=1, le=WIDEST)
    """Hidden size; needed for a hub id that is not in the local cache."""
    pickled: bool = False
    """Allow pickled weights (.bin) where there is no .safetensors file."""
    ignore_code: bool = False
    """Read a model that comes with code of its own (`auto_map` in `config.json`) by the class that
    transformers has for its type. That code is never run; without this, the model is refused.
    """
    disk: Size | None = None
    """Disk space for the checkpoints of a hub id: each is downloaded when it is needed, and removed
    when its space is. By default nothing is removed.
    Example: `10GB`
    """
    pooling: Pooling | None = None
    """In place of the protocol's, for this model."""
    prompts: str | dict[str, str] | None = None
    """What is put before every text: one prompt for all, or prompts by role (`query`, `document`,
    `default` for neither), kind of task or task. By default those of a folder of
    sentence-transformers that is read as shipped.
    Example: `{"query": "query: ", "document": "passage: "}`
    """
    max_length: int | None = Field(None, ge=2)
    """In place of the protocol's, or of what is shipped, for this model."""

    readouts: Readouts | None = None
    """In place of the configuration's, for this model. Example: `{"pooling": ["mean", "last"]}`"""

    @model_validator(mode="before")
    @classmethod
    def _name_after_source(cls, data: object) -> object:
        if isinstance(data, str):
            data = {"source": data}
        if not isinstance(data, Mapping):
            return data
        train = data.get("train")
        if is_script(train) and isinstance(train.get("checkpoints"), str):
            data = {"source": str(Path(train["checkpoints"]).parent), **data}
        source = data.get("source") or str(data.get("encoder", "")).rpartition(":")[2]
        if isinstance(source, str) and source:
            data = {"name": name_of(source), **data}
        return data

    @model_validator(mode="after")
    def _check_origin(self) -> Model:
        others = bool(self.source) + bool(self.train)
        if others + bool(self.encoder) != 1 and (self.program is None or self.encoder):
            raise ValueError(f"model '{self.name}' needs one of 'source', 'train' and 'encoder'")
        if self.disk and self.recipe:
            raise ValueError(
                f"model '{self.name}' is trained, so that it has nothing to download: leave out "
                "'disk'"
            )
        return self

    @model_validator(mode="after")
    def _check_encoder(self) -> Model:
        fields = type(self).model_fields.items()
        changed = {name for name, field in fields if getattr(self, name) != field.default}
        wrong = changed & _OF_ENCODERS
        kind = "no encoder"
        if self.encoder:
            wrong = changed - _OF_ENCODERS - _OF_ALL
            kind = "an encoder"
        elif not isinstance(self.layers, str) and any(isinstance(x, str) for x in self.layers):
            wrong = {"names of layers"}
        if wrong:
            raise ValueError(
                f"model '{self.name}' has {kind}: leave out {', '.join(sorted(wrong))}"
            )
        return self

    @property
    def recipe(self) -> Recipe | None:
        """How the built-in recipe trains it, if it does."""
        return self.train if isinstance(self.train, Recipe) else None

    @property
    def program(self) -> Script | None:
        """The program of one's own that trains it, if one does."""
        return self.train if isinstance(self.train, Script) else None


def _has_encoder(model: object) -> bool:
    return isinstance(model, Mapping) and bool(model.get("encoder"))


class Corpus(Section):
    """The texts whose representations are measured."""

    source: Source = "stdlib"
    """`stdlib`, a text file with one prompt per line, or `task:NAME` for the texts of a task.
    Example: `prompts.txt`
    """
    prompts: int = Field(256, ge=2, le=10_000_000)
    """Number of prompts. They are drawn with the seed of the run."""


class Protocol(Section):
    """How a text becomes a vector.

    It is part of every key and stored beside every number.

    ``state_norm`` says how a layer is read: ``raw`` as the block returns it, ``final_ln`` after the
    model's final layer norm (what a model truncated at this layer would give), ``hidden_states`` as
    transformers returns it (raw, except for the last layer). Presets: ``corrected`` and ``paper``,
    as in "Layer by Layer" (Skean et al., 2025).
    """

    pooling: Pooling = "as_shipped"
    """How token states become one vector: their mean, the last or the first token; or `as_shipped`,
    as a folder of sentence-transformers says (pooling, dense layers, normalisation, prompts,
    length, padding), and the mean for other models.
    """
    padding: Literal["right", "left"] = "right"
    """Side on which shorter texts are padded; it changes no vector."""
    max_length: int = Field(256, ge=2, le=10_000_000)
    """Tokens of a text that are read, at most. What a folder of sentence-transformers says counts
    instead; `max_length` of the model replaces both.
    """
    state_norm: Literal["raw", "final_ln", "hidden_states"] = "final_ln"
    """How a layer is read: `raw` as the block returns it, `final_ln` after the final layer norm of
    the model, `hidden_states` as transformers returns it.
    """
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of weights and states."""
    batch_tokens: int = Field(1024, ge=1, le=10**9)
    """Padded tokens per batch. Texts are sorted by length. On a GPU these are at least as many as
    fit into half of its free memory, up to 65,536.
    """


PRESETS: Mapping[str, Protocol] = {
    "corrected": Protocol(),
    "paper": Protocol(pooling="mean", padding="left", max_length=2048, state_norm="hidden_states"),
}


class Search(Section):
    """Which task evaluations are paid for, and when to stop."""

    policy: str = "race"
    """Name of a policy, or `package.module:function`. Example: `random`"""
    budget: Annotated[float, Field(ge=1e-6, le=1)] | Literal["auto"] = "auto"
    """Share of the cost of every score that may be spent. `auto` computes every score where there
    are few checkpoints, where all scores take less than five minutes (estimated), or where a first
    look at every model takes half of that, and else allows 30 %.
    """
    cells: int | None = Field(None, ge=1)
    """Largest number of scores to compute."""
    within: float = Field(0.001, ge=0, lt=1)
    """The search ends when no more than this share of the score is expected to be gained. 0 goes on
    until no candidate is likely to be better.
    """
    objective: str = "all"
    """What the best candidate is best at: `all` tasks, one kind of task, or one task.
    Example: `classification`
    """
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field({})
    """Weight of a task in the objective, by its name. The default is 1.
    Example: `{"STS12": 2.0}`
    """
    baseline: str | None = None
    """MODEL@REVISION whose last layer every candidate is compared with. By default the last
    checkpoint of the recommended candidate's own model.
    Example: `pythia-410m@step143000`
    """
    confirm: Literal["leader", "fresh"] = "leader"
    """What checks the choice: `leader` scores the leading candidate on its missing tasks; `fresh`
    also keeps back items of every task from the search, and scores up to five finalists on them,
    beyond its budget.
    """
    device: Literal["cpu", "gpu"] = "cpu"
    """Device whose speed is assumed when costs are compared."""
    window: int | None = Field(None, ge=1, le=10_000)
    """Decisions that may be open at once. By default the number of workers, from 8 to 32."""

    @field_validator("budget", mode="before")
    @classmethod
    def _check_budget(cls, value: object) -> object:
        is_share = isinstance(value, int | float) and 1e-6 <= value <= 1
        if value != "auto" and not is_share:
            raise ValueError(
                "must be a share of the cost of every score, at least 0.000001 and at most 1, or"
                " 'auto'"
            )
        return value


Trackers = Annotated[tuple[Literal["mlflow", "wandb"], ...], AS_LIST]


class Config(Section):
    """One experiment."""

    name: Name
    """Name of the experiment and of its folder. Example: `pythia`"""
    seed: Seed = 0
    """Seed of everything that is drawn at random."""
    models: tuple[Model, ...] = Field(min_length=1)
    """The suites whose checkpoints are compared.
    Example: `[{"name": "pythia-70m", "source": "EleutherAI/pythia-70m"}]`
    """
    corpus: Corpus = Corpus()
    """The texts whose representations are measured. Example: `{"source": "prompts.txt"}`"""
    protocol: Protocol = Protocol()
    """How a text becomes a vector. Also the name of a preset, or keys on top of `preset: NAME`.
    Example: `paper`
    """
    readouts: Readouts = Readouts()
    """How vectors are read from the states, beside the layer: each choice is a candidate.
    Example: `{"pooling": ["mean", "last"], "dimensions": ["all", 256]}`
    """
    metrics: Names = ("prompt_entropy", "curvature", "effective_rank")
    """Label-free metrics: names, families, or `all` of them; `[]` measures nothing. The default
    ones are cheap, and about different things: the tokens of a prompt, their order, and the
    prompts.
    Example: `all`
    """
    tasks: tuple[str, ...] = ()
    """Names of tasks, of sets of tasks, or of presets.
    Example: `["stdlib:demo", "mteb:STS12", "file:reviews.csv"]`
    """
    search: Search = Search()
    """Which task evaluations are paid for. Example: `{"budget": 0.1}`"""
    cluster: Cluster = Cluster()
    """Where the work runs. Also the name of a profile, or keys on top of `profile: NAME`.
    Example: `local`
    """
    ddp: DDP = DDP()
    """How processes that train together are run. Example: `{"folder": "suites"}`"""
    until_idle: Duration = "none"
    """`daskmetrics watch` ends when no new checkpoint appeared for this long. `none` does not end
    it.
    Example: `10m`
    """
    log_to: Trackers = ()
    """Also log the best score to MLflow or Weights & Biases: at the end of a run, and with each
    round of a watch. Their own settings and variables say where.
    Example: `["mlflow", "wandb"]`
    """

    @model_validator(mode="before")
    @classmethod
    def _no_metrics_of_encoders(cls, data: Any) -> Any:
        models = data.get("models") if isinstance(data, Mapping) else None
        if isinstance(models, list | tuple) and any(map(_has_encoder, models)):
            return {"metrics": [], **data}
        return data

    @model_validator(mode="after")
    def _check_names(self) -> Config:
        encoders = [model.name for model in self.models if model.encoder]
        if encoders and self.metrics:
            raise ValueError(
                f"model '{encoders[0]}' has an encoder, which reads no prompts: leave out 'metrics'"
            )
        names = [model.name for model in self.models]
        if len(set(names)) < len(names):
            raise ValueError(f"model names must differ, got {', '.join(names)}")
        return self

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain JSON values, in the order of its fields."""
        return self.model_dump(mode="json")
