from __future__ import annotations

import csv
import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Measured, Scored
from daskmetrics.execution import Journal, Record
from daskmetrics.experiment.score_tables import read
from tests.events import started

DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_has_the_scores_of_its_rows(tmp_path, known_csv, known):
    table = read(known_csv)
    assert table.arms == known.arms and table.kinds == known.kinds
    np.testing.assert_array_equal(table.scores, known.scores)
    np.testing.assert_array_equal(table.seconds, known.seconds)
    with pytest.raises(ConfigError, match=r"neither a table nor .* a run"):
        read(tmp_path)


def test_the_published_columns(tmp_path):
    header = "family,size,revision,layer,task,task_type,main_score,evaluation_time,n_subsets"
    rows = "Pythia,14m,main,0,BIOSSES,sts,0.5,7.5,1", "Pythia,14m,main,1,BIOSSES,sts,,8,1"
    table = read(write(tmp_path / "scores.csv", header, *rows))
    # a row without a score is no row
    assert [str(arm) for arm in table.arms] == ["Pythia-14m@main/0"]
    assert table.kinds == {"BIOSSES": "sts"}
    assert table.scores.tolist() == [[0.5]] and table.seconds.tolist() == [[7.5]]


@pytest.mark.parametrize(
    "column", ["model", "revision", "layer", "task", "score", "seconds", "kind"]
)
def test_a_misspelt_column_is_an_error_and_never_a_default(tmp_path, column, known_csv):
    renamed = tmp_path / "renamed.csv"
    header, *rows = known_csv.read_text().splitlines()[:3]
    for name in (f"{column}s", f" {column}", column.title()):
        write(renamed, header.replace(column, name, 1), *rows)
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


HEADER = "model,layer,task,score"


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("model,layer,score", ["a,0,1"], "has no column 'task'"),
        (HEADER, ["a,first,t,1"], "line 2: the field 'layer' is 'first' (Input should be a valid"),
        (HEADER, ["a,-1,t,1"], "line 2: the field 'layer' is '-1'"),
        (HEADER, ["a,0,t,good"], "line 2: the field 'score' is 'good'"),
        (HEADER, ["a,0,t,1e300"], "the field 'score' is '1e300'"),
        (HEADER, ["a,0,,1"], "line 2: the field 'task' is missing"),
        (HEADER, ["a,0,t,1", "a,0,t,2"], "line 3: a@main/0:t has the score 2, and 1 in"),
        (HEADER + ",seconds", ["a,0,t,1,-3"], "the field 'seconds' is '-3'"),
        (HEADER + ",seconds", ["a,0,t,1,inf"], "line 2: the field 'seconds' is 'inf'"),
        (HEADER + ",score", ["a,0,t,1,2"], "has a column twice in its header"),
        (HEADER, [], "contains no scores"),
    ],
)
def test_an_error_in_a_table_has_its_line(tmp_path, header, rows, message):
    with pytest.raises((ConfigError, DataError), match=re.escape(message)):
        read(write(tmp_path / "s.csv", header, *rows))


def test_the_folder_of_a_run(tmp_path):
    folder = RunFolder(tmp_path / "run").create()
    tasks = {"stdlib:word": {"kind": "classification"}}
    with Journal(folder.journal, folder.lock) as journal:
        weights = {"stdlib:word": 2.0, "stdlib:unscored": 3.0}
        search = {"search": {"weights": weights, "budget": 0.1}}
        journal.append(started(tasks=tasks, widths={"tiny": 8, "small": 16}, config=search))
    with pytest.raises(ConfigError, match=r"has no scores.*search.policy=sweep"):
        read(folder.path)

    values = ((1.0, None), (2.0, 3.0))
    value = Measured((0, 1), ("norm", "rank"), values, values, ((1, 2), (1, 1)))
    score = Scored(0.5, 0.02, n=10, encode_seconds=2.0)
    with Journal(folder.journal, folder.lock) as journal:
        for model in ("small", "tiny"):
            name = f"{model}@step4/1:stdlib:word"
            journal.append(Record(name, name, "score", "ok", value=score, seconds=0.25))
        journal.append(Record("a", "tiny@step4", "measure", "ok", value=value))
        journal.append(Record("c", "tiny@step4/0:stdlib:word", "score", "nan", reason="not finite"))
        journal.append(Record("d", "tiny@step4/0:stdlib:gone", "score", "ok", value=score))
    table = read(folder.path)
    # models are in the order of the run and not of its scores
    assert [str(arm) for arm in table.arms] == ["tiny@step4/1", "small@step4/1"]
    assert table.kinds == {"stdlib:word": "classification"}
    assert table.scores.tolist() == [[0.5]] * 2
    assert (table.objective, table.weights) == ("all", {"stdlib:word": 2.0})
    assert table.seconds.tolist() == [[2.25]] * 2 and table.encode.tolist() == [[2.0]] * 2


@pytest.mark.shared
@pytest.mark.skipif(not DATA, reason="needs DASKMETRICS_PUBLISHED_DATA")
def test_the_published_tables():
    folder = Path(str(DATA))
    table = read(folder / "published_scores.csv.gz", ["Pythia-410m"])
    assert table.scores.shape == (350, 32) and table.known == 11_200
    assert np.nansum(table.seconds) / 3600 == pytest.approx(278, abs=0.5)
    with gzip.open(folder / "published_scores.csv.gz", "rt") as lines:
        row = next(row for row in csv.DictReader(lines) if row["size"] == "410m")
    index = table.arms.index(Arm("Pythia-410m", row["revision"], int(row["layer"])))
    assert table.scores[index, table.tasks.index(row["task"])] == float(row["main_score"])

    other = read(folder / "other_families_scores.csv.gz")
    holes = {suite.model: 0 for suite in other.suites}
    for arm, complete in zip(other.arms, np.isfinite(other.scores).all(axis=1), strict=True):
        holes[arm.model] += not complete
    assert holes == {"LLM2Vec-mntp-8B": 14, "Pythia-160m": 0, "mamba-130m": 0, "mamba-370m": 22}
