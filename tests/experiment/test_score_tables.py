from __future__ import annotations

import csv
import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Measured, Scored
from daskmetrics.execution import Journal, Record
from daskmetrics.experiment.score_tables import read
from tests.events import started

DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_csv_file_with_our_columns(known_csv, known):
    found = read(known_csv)
    assert found.arms == known.arms and found.kinds == known.kinds
    for name in ("scores", "seconds", "stderr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))


def test_a_csv_file_with_the_published_columns_compressed(tmp_path):
    path = tmp_path / "scores.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write(
            "family,size,revision,layer,task,task_type,main_score,evaluation_time,n_subsets\n"
        )
        file.write("Pythia,14m,main,0,BIOSSES,sts,0.5,7.5,1\nPythia,14m,main,1,BIOSSES,sts,,8,1\n")
    found = read(path)
    # a row without a score is no row
    assert [str(arm) for arm in found.arms] == ["Pythia-14m@main/0"]
    assert found.kinds == {"BIOSSES": "sts"}
    assert found.scores.tolist() == [[0.5]] and found.seconds.tolist() == [[7.5]]


def test_a_damaged_file_is_refused(tmp_path):
    path, table = tmp_path / "s.csv.gz", b"model,layer,task,score\n"
    for content in (gzip.compress(table + b"a,0,t,1\n" * 999)[:-20], table):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="damaged or incomplete"):
            read(path)


def test_a_table_is_the_same_in_every_format(tmp_path, known_csv):
    frame = pd.read_csv(known_csv, dtype={"kind": str})
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    frame.to_parquet(tmp_path / "s.parquet")
    frame.to_csv(tmp_path / "s.tsv", sep="\t", index=False)
    expected = read(known_csv)
    for path in tmp_path.glob("s.*"):
        found = read(path)
        assert found.arms == expected.arms and found.kinds == expected.kinds
        for name in ("scores", "seconds", "stderr"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize(
    "column", ["model", "revision", "layer", "task", "score", "stderr", "seconds", "kind"]
)
def test_a_misspelt_column_is_an_error_and_never_a_default(tmp_path, column, known_csv):
    renamed = tmp_path / "renamed.csv"
    header, body = known_csv.read_text().split("\n", 1)
    for name in (f"{column}s", f" {column}", column.title()):
        renamed.write_text(header.replace(column, name, 1) + "\n" + body)
        with pytest.raises(
            ConfigError, match=rf"has (a column '{name}' and )?no (column )?'{column}'"
        ):
            read(renamed)


def test_only_the_requested_models_are_read(tmp_path):
    path = write(tmp_path / "s.csv", "model,layer,task,score", "a,0,t,1", "b,0,t,2")
    assert [suite.model for suite in read(path).suites] == ["a", "b"]
    assert [suite.model for suite in read(path, ["b"]).suites] == ["b"]
    with pytest.raises(ConfigError, match=r"Unknown model 'c'.*Valid: a, b"):
        read(path, ["c"])


@pytest.mark.skipif(not DATA, reason="needs the published tables")
def test_published_tables_of_other_families_have_holes():
    folder = Path(DATA)
    other = read(folder / "other_families_scores.csv.gz")
    holes = {suite.model: 0 for suite in other.suites}
    for arm, complete in zip(other.arms, np.isfinite(other.scores).all(axis=1), strict=True):
        holes[arm.model] += not complete
    assert holes == {"LLM2Vec-mntp-8B": 14, "Pythia-160m": 0, "mamba-130m": 0, "mamba-370m": 22}


@pytest.mark.parametrize(
    ("lines", "error", "message"),
    [
        (["model,layer,score", "a,0,1"], ConfigError, "has no column 'task'"),
        (
            ["model,layer,task,score", "a,first,t,1"],
            DataError,
            "line 2: the field 'layer' is 'first' (Input should be a valid integer",
        ),
        (["model,layer,task,score", "a,-1,t,1"], DataError, "line 2: the field 'layer' is '-1'"),
        (
            ["model,layer,task,score", "a,0,t,good"],
            DataError,
            "line 2: the field 'score' is 'good'",
        ),
        (["model,layer,task,score", "a,0,t,1e300"], DataError, "the field 'score' is '1e300'"),
        (["model,layer,task,score", "a,0,,1"], DataError, "line 2: the field 'task' is missing"),
        (
            ["model,layer,task,score", "a,0,t,1", "a,0,t,2"],
            DataError,
            "line 3: a@main/0:t has the score 2, and 1 in",
        ),
        (
            ["model,layer,task,score,seconds", "a,0,t,1,-3"],
            DataError,
            "the field 'seconds' is '-3'",
        ),
        (
            ["model,layer,task,score,seconds", "a,0,t,1,inf"],
            DataError,
            "line 2: the field 'seconds' is 'inf'",
        ),
        (
            ["model,layer,task,score,score", "a,0,t,1,2"],
            ConfigError,
            "has a column twice in its header",
        ),
        (["model,layer,task,score"], DataError, "contains no scores"),
    ],
)
def test_an_error_in_a_table_has_its_line(tmp_path, lines, error, message):
    with pytest.raises(error, match=re.escape(message)):
        read(write(tmp_path / "s.csv", *lines))


def test_the_error_for_a_path_without_scores_lists_what_is_read(tmp_path):
    with pytest.raises(ConfigError, match=r"neither a table nor .* a run.*import-results"):
        read(tmp_path)


def journal(folder: RunFolder, records: list[Record]) -> None:
    start = started(
        tasks={"stdlib:word": {"kind": "classification"}}, widths={"tiny": 8, "small": 16}
    )
    with Journal(folder.journal, folder.lock) as journal:
        journal.append(start)
        for record in records:
            journal.append(record)


def test_models_are_in_the_order_of_the_run_and_not_of_its_scores(tmp_path):
    folder = RunFolder(tmp_path / "run").create()
    score = Scored(0.5, 0.02, n=10, encode_seconds=2.0)
    names = [f"{model}@step{step}/1:stdlib:word" for model in ("small", "tiny") for step in (4, 8)]
    journal(
        folder, [Record(name, name, "score", "ok", value=score, seconds=0.25) for name in names]
    )
    found = read(folder.path)
    assert [suite.model for suite in found.suites] == ["tiny", "small"]


def test_the_folder_of_a_run(tmp_path):
    folder = RunFolder(tmp_path / "run").create()
    values = ((1.0, None), (2.0, 3.0))
    value = Measured((0, 1), ("norm", "rank"), values, values, ((1, 2), (1, 1)))
    score = Scored(0.5, 0.02, n=10, encode_seconds=2.0)
    journal(
        folder,
        [
            Record("a", "tiny@step4", "measure", "ok", value=value),
            Record("b", "tiny@step4/1:stdlib:word", "score", "ok", value=score, seconds=0.25),
            Record("c", "tiny@step4/0:stdlib:word", "score", "nan", reason="not finite"),
            Record("d", "tiny@step4/0:stdlib:gone", "score", "ok", value=score),
        ],
    )
    found = read(folder.path)
    assert [str(arm) for arm in found.arms] == ["tiny@step4/1"] and found.kinds == {
        "stdlib:word": "classification"
    }
    assert (
        found.scores.tolist() == [[0.5]]
        and found.seconds.tolist() == [[2.25]]
        and found.encode.tolist() == [[2.0]]
    )


def test_the_error_for_a_run_without_scores_says_how_to_get_them(tmp_path):
    folder = RunFolder(tmp_path / "run").create()
    journal(folder, [])
    with pytest.raises(ConfigError, match=r"has no scores.*search.policy=sweep"):
        read(folder.path)


@pytest.mark.shared
@pytest.mark.skipif(
    not DATA, reason="set DASKMETRICS_PUBLISHED_DATA to the folder of published_scores.csv.gz"
)
def test_the_published_table():
    folder = Path(str(DATA))
    found = read(folder / "published_scores.csv.gz", ["Pythia-410m"])
    assert found.scores.shape == (350, 32) and found.known == 11_200
    assert np.nansum(found.seconds) / 3600 == pytest.approx(278, abs=0.5)
    with gzip.open(folder / "published_scores.csv.gz", "rt") as lines:
        row = next(row for row in csv.DictReader(lines) if row["size"] == "410m")
    at = found.arms.index(Arm("Pythia-410m", row["revision"], int(row["layer"])))
    assert found.scores[at, found.tasks.index(row["task"])] == float(row["main_score"])
