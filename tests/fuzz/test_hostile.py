"""Files that somebody made to do harm: what they name is not touched, and what they unpack to is
not read.

docs/security.md lists the attacks and their tests.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import re
import shutil
from itertools import chain
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner

from daskmetrics import config
from daskmetrics.checkpoints import locations
from daskmetrics.cli import main
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.rows import read_lines, read_rows
from daskmetrics.execution.map.result_table import write
from daskmetrics.execution.map.source import ItemResult
from tests.fuzz.readers import MODULES, SHIPPED, as_json, model_files, sealed, write_files
from tests.report.conftest import Story, make_run


def test_a_gzip_bomb_is_refused(tmp_path):
    bomb = gzip.compress(b"text\n" + bytes(1 << 28))
    for name, read in (("x.csv.gz", read_rows), ("x.txt.gz", read_lines)):
        (tmp_path / name).write_bytes(bomb)
        with pytest.raises(ConfigError, match="unpacks to more than 100 times its size"):
            list(read(tmp_path / name))


def test_a_parquet_file_of_a_billion_equal_rows_is_refused(tmp_path):
    pandas.DataFrame({"text": pandas.Categorical.from_codes([0] * 2_000_000, ["a"])}).to_parquet(
        tmp_path / "x.parquet"
    )
    with pytest.raises(ConfigError, match="has 2,000,000 rows in"):
        list(read_rows(tmp_path / "x.parquet"))


@pytest.mark.parametrize("inner", ["[x, x, x, x, x, x, x, x, x]", "{b: x}"])
def test_aliases_that_stand_for_a_billion_values_are_refused(tmp_path, inner):
    aliases = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    for text in ("\n".join([f"a0: &a0 {inner}", *aliases]), "a: &a [*a]"):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(ConfigError, match="not valid YAML"):
            config.load(tmp_path / "x.yaml")


@pytest.mark.parametrize("path", ["../other", "/etc", "1_Pooling/../../other"])
def test_a_checkpoint_names_no_files_outside_its_folder(tmp_path, path):
    files = {name: content for name, content in model_files().items() if "index" not in name}
    files["modules.json"] = as_json([*MODULES, {"type": f"{SHIPPED}.Dense", "path": path}])
    write_files(tmp_path / "m", files)
    with pytest.raises(DataError, match="no list of modules in folders below it"):
        locations.locate(Model(name="m", source=str(tmp_path / "m")))


def test_a_link_of_another_user_as_a_run_folder_is_refused(tmp_path):
    if os.getuid():
        pytest.skip("only root can make a link of another user")
    (tmp_path / "mine").mkdir(mode=0o755)
    link = tmp_path / "run"
    link.symlink_to(tmp_path / "mine")
    RunFolder(link).create()
    os.lchown(link, 12345, 12345)
    with pytest.raises(ConfigError, match="is a link of another user"):
        RunFolder(link).create()


HOSTILE = {
    "a path": "../../../outside",
    "an absolute path": "/tmp/outside",
    "HTML": "<script>alert(1)</script>",
    "escapes of a terminal": "\x1b[2J\x1b]0;title\x07",
    "a line end": "a\nb\rc",
    "markup": "[red]a[/red] [link=x]",
    "half a character": "\ud800",
}


@pytest.fixture(scope="module")
def a_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    make_run(folder, Story(failing=("tiny@step1",), warnings=("doubtful",)))
    return folder


@pytest.mark.parametrize("start", [0, 3])
def test_a_forged_run_controls_no_terminal_page_or_outside_file(tmp_path, a_run, start):
    """Its models, tasks, warnings and revisions have hostile names, each another one, and its
    journal has valid checksums.
    """
    folder = tmp_path / "deep" / "runs" / "run"
    shutil.copytree(a_run, folder)
    lines = [line[9:] for line in (folder / "journal.jsonl").read_text().splitlines()]
    text = "\n".join(lines)
    names = ("tiny", "stdlib:order", "doubtful", "step8")
    for name, hostile in zip(names, list(HOSTILE.values())[start:], strict=False):
        text = text.replace(name, json.dumps(hostile)[1:-1])
    (folder / "journal.jsonl").write_bytes(sealed(text.encode()))
    (folder / "journal.mark").unlink(missing_ok=True)

    def outside() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if folder not in path.parents}

    before = outside()
    maintenance = ("verify", "repair", "journal", "export", "logs")
    for command in ("status", "best", "report", *(f"runs {name}" for name in maintenance)):
        done = CliRunner().invoke(main, [*command.split(), str(folder)])
        assert done.exception is None or isinstance(done.exception, SystemExit), command
        signs = set(done.output) - {"\n"}
        assert all(sign.isprintable() for sign in signs), command
    assert outside() == before and not Path("/tmp/outside").exists()
    for page in folder.rglob("*.html"):
        assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


WRITERS = (
    "report",
    "report --format csv",
    *(f"runs {name}" for name in ("repair", "export", "retry")),
)


LINKS = (
    "report journal.mark lock telemetry.jsonl store.zarr store.zarr/tiny/metrics export-mteb driver"
)


@pytest.mark.parametrize("name", LINKS.split())
def test_a_run_with_a_link_writes_nothing_outside_itself(tmp_path, a_run, name):
    folder = tmp_path / "runs" / "run"
    shutil.copytree(a_run, folder)
    outside = tmp_path / "outside"
    path = folder / name
    if path.is_dir() or "." not in name:
        if path.is_dir():
            shutil.copytree(path, outside)
            shutil.rmtree(path)
        else:
            outside.mkdir()
            path.unlink(missing_ok=True)
    else:
        outside.write_text("kept")
        path.unlink(missing_ok=True)
    path.symlink_to(outside)

    def contents() -> dict[Path, bytes]:
        files = [outside, *outside.rglob("*")]
        return {file: file.read_bytes() for file in files if file.is_file()}

    before = contents()
    for command in WRITERS:
        done = CliRunner().invoke(main, [*command.split(), str(folder)])
        assert done.exception is None or isinstance(done.exception, SystemExit), command
        assert contents() == before, command
    if path.parent == folder:
        with pytest.raises(DataError, match="in the place of a file of ours"):
            RunFolder(folder).create()


def test_forged_entries_with_valid_checksums_are_no_tracebacks(tmp_path, a_run):
    """Each field of an entry of each kind in turn has another type, is huge, or is missing."""
    lines = [json.loads(line[9:]) for line in (a_run / "journal.jsonl").read_text().splitlines()]
    kinds = {line["type"]: number for number, line in enumerate(lines[1:], 1)}
    choose = random.Random(0)
    for number in kinds.values():
        for _ in range(3):
            forged = [*lines[:number], forge(lines[number], choose), *lines[number + 1 :]]
            folder = tmp_path / "run"
            shutil.copytree(a_run, folder)
            text = "\n".join(map(json.dumps, forged))
            (folder / "journal.jsonl").write_bytes(sealed(text.encode()))
            (folder / "journal.mark").unlink()
            for command in ("best", "report", "runs verify"):
                done = CliRunner().invoke(main, [*command.split(), str(folder)])
                assert isinstance(done.exception, SystemExit | None), (command, forged[number])
            shutil.rmtree(folder)


FORGED = (None, True, -1, 2**70, 1e308, "", "x", "a@b/1", [], {}, [[None]], {"a": 1}, "\ud800")


def forge(value: object, choose: random.Random) -> object:
    """A copy of a JSON value, of which one part is another one."""
    match value:
        case {**fields} if fields and choose.random() < 0.9:
            name = choose.choice([name for name in fields if name != "type"] or [*fields])
            return {**fields, name: forge(fields[name], choose)}
        case [_, *_] if choose.random() < 0.7:
            place = choose.randrange(min(3, len(value)))
            return [*value[:place], forge(value[place], choose), *value[place + 1 :]]
    return choose.choice(FORGED)


FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "=\x1b[2J")


def test_a_spreadsheet_runs_no_cell_of_a_csv_file(tmp_path):
    """Values and names of columns alike, and numbers stay numbers; other formats hold the texts."""
    results = [
        ItemResult("k", index, text, text, "ok", value={"a": text, text: -0.5})
        for index, text in enumerate(FORMULAS)
    ]
    with write(results, tmp_path / "x.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    for cell in (*header, *chain(*rows)):
        assert re.fullmatch(r"-0\.5", cell) or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert "\x1b" not in cell
    assert {cell for row in rows for cell in row} >= {"'=1+1", "'@SUM(1)", r"'=\x1b[2J", "-0.5"}
    lines = write(results, tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"]["a"] for line in lines] == list(FORMULAS)


@pytest.mark.parametrize("page", ["security.md", "faults.md"])
def test_the_pages_on_security_and_faults_name_tests_that_exist(page):
    root = Path(__file__).parents[2]
    named = re.findall(
        r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (root / "docs" / page).read_text(encoding="utf-8")
    )
    assert len(named) > 20
    for path, test in named:
        assert f"def {test}" in (root / path).read_text(encoding="utf-8"), (path, test)
