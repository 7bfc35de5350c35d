"""The pages and the schema that are made from the package itself.

``python docs/generate.py`` writes the JSON schema of configurations,
`configs/daskmetrics.schema.json`. The pages are written by every build of the documentation (see
``conf.py``) and are not committed.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from daskmetrics.config import Config, Section

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "generated"
SCHEMA = ROOT / "configs" / "daskmetrics.schema.json"

PUBLIC = (
    "daskmetrics",
    "daskmetrics.report",
    "daskmetrics.answer",
    "daskmetrics.config",
    "daskmetrics.metrics",
    "daskmetrics.tasks",
    "daskmetrics.bandit",
    "daskmetrics.execution",
    "daskmetrics.execution.map",
    "daskmetrics.cluster",
    "daskmetrics.store",
    "daskmetrics.training",
    "daskmetrics.domain.names",
    "daskmetrics.core.errors",
)


def write_pages() -> None:
    """Write the generated pages, and copy the notebooks to where the site finds them."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir()
    (PAGES / "api.rst").write_text(api_page(), encoding="utf-8")
    (PAGES / "configuration.md").write_text(configuration_page(), encoding="utf-8")
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(notebook, PAGES / notebook.name)


def api_page() -> str:
    """The public packages, each with the names of its ``__all__``."""
    head = "API\n===\n\nA name that is not on this page is internal and may change at any time.\n"
    seen: set[int] = set()
    return head + "".join(_package(name, seen) for name in PUBLIC)


def _package(name: str, seen: set[int]) -> str:
    """One package; what an earlier one exports, too, is listed there alone."""
    module = importlib.import_module(name)
    first = (module.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
    exported = getattr(module, "__all__", ())
    names = [
        each
        for each in exported
        if not each.startswith("__") and id(getattr(module, each)) not in seen
    ]
    names = [
        each for each in names if getattr(getattr(module, each), "__module__", "") != "builtins"
    ]  # aliases of str
    seen.update(id(getattr(module, each)) for each in names)
    listed = "\n".join(f"   {each}" for each in names)
    table = f".. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{listed}\n" if names else ""
    return f"\n{name}\n{'-' * len(name)}\n\n{first}\n\n.. currentmodule:: {name}\n\n{table}"


def configuration_page() -> str:
    """Every key of a configuration: type, default, meaning, and an example where it is no plain
    number or choice.
    """
    head = (
        "# Configuration\n\nAn experiment is one YAML file. Each key can also be set on the command line, for instance "
        "`--set search.budget=0.1` or `--set models.0.revisions=log`. An unknown key is an error. Editors complete and "
        "check the keys with the schema `configs/daskmetrics.schema.json`; the first line of the file names it:\n\n"
        "```yaml\n# yaml-language-server: $schema=daskmetrics.schema.json\n```\n"
    )
    return head + "".join(_section_page(path, section) for path, section in sections(Config))


def sections(section: type[Section], path: str = "") -> Iterator[tuple[str, type[Section]]]:
    """The sections below one, each with the path of its key; the section itself first."""
    yield path, section
    for name, field in section.model_fields.items():
        for kind in _kinds(field.annotation):
            yield from sections(kind, f"{path}.{name}".lstrip("."))


def _kinds(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def _section_page(path: str, section: type[Section]) -> str:
    title = f"`{path}`: {section.__name__}" if path else "Top level"
    meaning = (section.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
    properties = section.model_json_schema()["properties"]
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    keys = "".join(_key(name, field, properties[name]) for name, field in fields.items())
    return f"\n## {title}\n\n{meaning}\n\n{keys}"


def _key(name: str, field: FieldInfo, schema: dict[str, Any]) -> str:
    """One key as an item of a definition list."""
    inner = list(_kinds(field.annotation))
    sections = " or ".join(section.__name__ for section in inner)
    kind = f"section {sections}" if inner else _type(schema)
    if field.is_required():
        kind += "; required"
    elif not inner:
        kind += f"; default `{json.dumps(field.default)}`"
    description = " ".join((field.description or "").split())
    return f"`{name}`\n: *{kind}.* {description}\n\n"


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema's type in words, such as ``integer, at least 1``."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    bounds = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
    }
    name = {"array": "list", "object": "mapping", "null": "none"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )
    return ", ".join(
        [name, *(f"{word} {schema[key]:g}" for key, word in bounds.items() if key in schema)]
    )


def schema() -> str:
    """The JSON schema of a configuration file, with the short forms that `daskmetrics.config.load`
    accepts.
    """
    whole = Config.model_json_schema()
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "An experiment of daskmetrics"
    for section in (whole, *whole["$defs"].values()):
        for described in section["properties"].values():
            if text := described.get("description"):
                described["description"] = " ".join(text.split())
                _, _, example = described["description"].rstrip("`").partition("Example: `")
                if example:
                    described["examples"] = [example]
                with suppress(ValueError):  # a text without quotes
                    described["examples"] = [json.loads(example)]
    for key, word in (("protocol", "preset"), ("cluster", "profile")):
        section = whole["$defs"][key.capitalize()]
        section["properties"][word] = {
            "type": "string",
            "description": f"Name of a {word}; the other keys change it.",
        }
        reference = whole["properties"][key].pop("$ref")
        whole["properties"][key]["anyOf"] = [{"type": "string"}, {"$ref": reference}]
    whole["$defs"]["Model"] |= {
        "type": ["object", "string"],
        "required": [],
    }  # a source alone names the model
    return json.dumps(whole, indent=1) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema(), encoding="utf-8")
    print(f"Wrote {SCHEMA.relative_to(ROOT)}")
