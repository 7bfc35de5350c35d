"""Writes docs/reference.md from the docstrings of the public modules.

python docs/reference.py           write it
python docs/reference.py --check   fail if it is not what the docstrings say
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference.md"
HEAD = "# Reference\n\nGenerated from the docstrings by `make docs`; do not edit.\n"


def modules() -> Iterator[Path]:
    """Public modules, each package before what it holds."""
    for path in sorted(
        ROOT.glob("daskmetrics/**/*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path.name)
    ):
        if not path.name.startswith("_") or path.name == "__init__.py":
            yield path


def page() -> str:
    """The whole reference."""
    return HEAD + "".join(_module(path) for path in modules())


def _module(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    parts = [f"\n## `{name}`\n", _text(tree)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            parts += _entry(node, "###")
    return "".join(parts)


def _entry(node: ast.FunctionDef | ast.ClassDef, level: str) -> Iterator[str]:
    if ast.get_docstring(node) is None:
        return
    yield f"\n{level} `{_signature(node)}`\n"
    yield _text(node)
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
                yield from _entry(child, "####")


def _signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def _text(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """A docstring: its first paragraph as prose, the sections as they stand."""
    first, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
    return f"\n{' '.join(first.split())}\n" + (f"\n```text\n{rest.rstrip()}\n```\n" if rest.strip() else "")


def main() -> int:
    """Write or check the page; the exit code."""
    if "--check" in sys.argv[1:]:
        fresh = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == page()
        print("fresh" if fresh else "docs/reference.md is not what the docstrings say: run make docs")
        return 0 if fresh else 1
    TARGET.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
