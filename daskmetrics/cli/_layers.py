"""The command ``layers``: every layer of models, scored on one's own data in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import daskmetrics
from daskmetrics.cli._common import (
    Output,
    answering,
    example,
    noted_warnings,
    parsed_by,
    path_option,
    text_option,
    within_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import require_new


def _layers(text: str) -> str | list[int]:
    if text in ("all", "blocks"):
        return text
    return list(map(int, text.split(",")))


def _column(text: str) -> tuple[str, str]:
    role, column = text.split("=", 1)
    return role, column


def _part(text: str) -> tuple[str, list[int | str]]:
    """A part of the readouts and its values, which are numbers or words."""
    name, values = _column(text)
    words = map(str.strip, values.split(","))
    return name, [int(word) if word.isdecimal() else word for word in words]


LAYERS = parsed_by(_layers, "all, blocks, or numbers such as 0,3,6")
COLUMN = parsed_by(_column, "ROLE=COLUMN, for instance grade=mass")
PART = parsed_by(_part, "PART=VALUE,VALUE, for instance pooling=mean,last")


@click.command(
    epilog=example(
        "daskmetrics layers sentence-transformers/all-MiniLM-L6-v2 --data reviews.csv --text body "
        "--label stars",
        "daskmetrics layers models/mine gpt2 --data reviews.csv --save my-encoder",
        "daskmetrics layers models/mine --data reviews.csv --within 1% --save small",
        "daskmetrics layers --vectors states.npz --data labels.csv --label species",
        "daskmetrics layers --encoder own.py:vit --items image --data scans.csv --item file",
        "daskmetrics layers models/mine --task stdlib:order --json",
        "daskmetrics layers models/mine --task stdlib:order --readouts pooling=mean,last "
        "--readouts dimensions=all,64",
    )
)
@click.argument("model", nargs=-1)
@path_option("--vectors", "Vectors that exist, in place of models: .npz, .npy or Zarr.")
@text_option("--encoder", "FILE.py:NAME", "A function of your own, in place of models.")
@text_option("--checkpoints", "PATTERN", "Of --encoder: the pattern of its files or folders.")
@text_option("--items", "KIND", "Of --encoder: text, path, image, audio, array.", default="text")
@text_option("--data", "FILE", "Labelled texts: CSV, TSV, JSON Lines, Parquet or a folder.")
@text_option("--text", "COLUMN", "Column of the texts.  [default: recognised by its name]")
@text_option("--item", "COLUMN", "Of --encoder: column of the paths of items, in place of --text.")
@text_option("--label", "COLUMN", "Column of the labels.  [default: recognised by its name]")
@text_option("--group", "COLUMN", "Column of groups, such as patients, whose rows stay together.")
@text_option("--score", "NAME", "Of a classification, such as macro_f1.  [default: accuracy]")
@text_option("--task", "NAME", "A task in place of a file; may be repeated.", multiple=True)
@text_option("--layers", "N,N,...", "Layers to score; 0: embeddings.", type=LAYERS, default="all")
@text_option(
    "--readouts",
    "PART=V,V,...",
    "Compare readouts: pooling or dimensions; may be repeated.",
    type=PART,
    multiple=True,
)
@text_option(
    "--columns",
    "ROLE=COLUMN",
    "Another column or option of the data: grade=mass, kind=clustering, drop=rare; may be repeated.",
    type=COLUMN,
    multiple=True,
)
@text_option("--seed", "N", "Of folds, draws and starting points.", type=int, default=0)
@within_option
@path_option(
    "--save",
    "Save the best, or with --within the cheapest, as a model of sentence-transformers, in this new folder.",
)
@answering
def layers(
    model: tuple[str, ...],
    vectors: Path | None,
    encoder: str | None,
    checkpoints: str | None,
    items: str,
    data: str | None,
    task: tuple[str, ...],
    readouts: tuple[tuple[str, list[int | str]], ...],
    columns: tuple[tuple[str, str], ...],
    within: float | None,
    save: Path | None,
    **options: Any,
) -> Output:
    """Score every layer of each MODEL on your own data, on this machine.

    MODEL is a folder, also one of checkpoints, or a hub id; ID@REVISION names another revision than
    main. The scores are those of a run with the same data and seed. With --vectors, row i of the
    data labels vector i. With --encoder, the function make(checkpoint, device) returns encode(items).
    """
    from daskmetrics.answer.answer import WORTH
    from daskmetrics.execution.map.function import load
    from daskmetrics.experiment.vectors import is_of_vectors

    if [bool(model), vectors is not None, encoder is not None].count(True) != 1:
        raise ConfigError(
            "Give either models, or --vectors FILE with the vectors of their layers, or --encoder"
            " FILE.py:NAME, a function that makes them."
        )
    if checkpoints and not encoder:
        raise ConfigError("--checkpoints are those of --encoder FILE.py:NAME: give it, too.")
    if vectors and not is_of_vectors(vectors):
        raise ConfigError(f"--vectors reads .npz, .npy or Zarr, and '{vectors}' is none of these.")
    if vectors and task:
        raise ConfigError("--vectors needs --data FILE with labels.")
    if save and not model:
        raise ConfigError("There is no model to save: leave out --save, or give a MODEL of texts.")
    if (data is None) == (not task):
        raise ConfigError(
            "Give either --data FILE with your labelled texts, or --task NAME, such as "
            "stdlib:order."
        )
    if save:
        require_new(save)  # not only after all is scored
    parts: dict[str, list[int | str]] = {}
    for name, values in readouts:
        parts[name] = [*parts.get(name, []), *values]
    given: object = vectors or model
    if encoder:
        given = daskmetrics.Encoder(load(encoder), checkpoints, items=items)
    with noted_warnings():
        board = daskmetrics.layers(
            given,
            list(task) or data,
            columns=dict(columns),
            readouts=parts,
            **options,
        )
    hint = "To save the best for sentence-transformers, add: --save my-encoder"
    if not model:
        hint = ""
    if save:
        board.save(save, within)
        hint = f"Saved: {save}, which sentence_transformers.SentenceTransformer opens."

    def document() -> dict[str, object]:
        rows = board.to_frame().to_json(orient="records", double_precision=15)
        tasks = [
            {"name": task.name, "main_score": task.main_score, "floor": task.floor}
            for task in board.tasks
        ]
        return {
            "layers": json.loads(rows),
            "tasks": tasks,
            "over_floor": board.over_floor,
            "cheaper": board.cheaper(within or WORTH),
        }

    notes = [board.within(within), hint] if within else [hint]
    return Output(document, ["\n".join(filter(None, [str(board), *notes]))])
