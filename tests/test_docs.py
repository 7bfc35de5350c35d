"""The documentation agrees with the package."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.tasks.table import ROLES

ROOT = Path(__file__).parent.parent
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
PACKAGES = sorted(
    path.parent.relative_to(ROOT / "daskmetrics").as_posix()
    for path in ROOT.glob("daskmetrics/**/__init__.py")
)
SCHEMA = json.loads((ROOT / "configs" / "daskmetrics.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_map_names_every_package_and_only_modules_that_exist():
    assert [name for name in PACKAGES if name != "." and f"`{name}/`" not in DESIGN] == []
    named = re.findall(r"`([a-z_/]+\.py)`", DESIGN)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "daskmetrics" / name).is_file()] == []


def test_the_page_of_tasks_lists_all_recognised_column_names():
    by_name = "none: only as `group=COLUMN`"
    rows = [f"| `{role}` | {', '.join(names) or by_name} |" for role, names in ROLES.items()]
    assert "\n".join(rows) in (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")


def test_the_examples_of_metric_functions_give_what_they_show():
    page = ROOT / "docs" / "metric_functions.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried > 20
    assert not failed


def test_the_page_of_maps_shows_what_a_dry_run_prints(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    (typed, printed) = re.findall(r"\$ daskmetrics (map .*?--dry-run)\n(.*?)```", page, re.DOTALL)[
        0
    ]
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, shlex.split(typed.replace("\\\n", " ")))
    version = re.compile(r"version \w+")  # a hash of the function's source
    assert version.sub("", done.output) == version.sub("", printed)


def test_the_schema_is_what_the_configuration_says(generate):
    assert generate.schema() == generate.SCHEMA.read_text(encoding="utf-8"), "run: make docs"


def test_the_examples_of_the_schema_satisfy_it():
    sections = (SCHEMA, *SCHEMA["$defs"].values())
    keys = [key for section in sections for key in section["properties"].values()]
    examples = [(key, example) for key in keys for example in key.get("examples", ())]
    assert len(examples) > 50
    for key, example in examples:
        jsonschema.validate(example, {**key, "$defs": SCHEMA["$defs"]})


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem
)
def test_ready_made_configurations_satisfy_the_schema(path):
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), SCHEMA)


def test_the_schema_has_training_programs_and_no_unknown_key():
    config = yaml.safe_load((ROOT / "configs" / "demo.yaml").read_text(encoding="utf-8"))
    config["models"] = [{"name": "mine", "train": {"script": "train.py", "args": ["--lr", 0.1]}}]
    jsonschema.validate(config, SCHEMA)
    config["search"]["bugdet"] = 0.1
    with pytest.raises(jsonschema.ValidationError, match="bugdet"):
        jsonschema.validate(config, SCHEMA)


def test_every_configuration_key_has_a_meaning(generate):
    missing = [
        f"{path}.{name}"
        for path, section in generate.sections(generate.Config)
        for name, field in section.model_fields.items()
        if not field.description
    ]
    assert not missing


def test_every_command_and_option_has_a_help_text():
    def silent(command, path):
        if not command.help:
            yield path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.help:
                yield f"{path} {parameter.opts[0]}"
        for name, inner in getattr(command, "commands", {}).items():
            yield from silent(inner, f"{path} {name}")

    assert not list(silent(main, "daskmetrics"))


def test_no_page_has_the_name_of_one_that_sphinx_writes_over_it():
    assert {page.stem for page in ROOT.glob("docs/*")}.isdisjoint({"search", "genindex"})
