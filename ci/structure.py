"""Counts of the structure of checkouts, side by side: python ci/structure.py FOLDER [FOLDER ...]"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from pathlib import Path


def counts(root: Path) -> dict[str, object]:
    """What is counted of the package in a checkout, by its name."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted((root / "daskmetrics").rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    lines = [line.strip() for text in texts.values() for line in text.splitlines()]
    lengths = sorted(
        node.end_lineno - node.lineno + 1 for node in nodes if isinstance(node, ast.FunctionDef)
    )
    classes = Counter(
        node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name[0] != "_"
    )
    helpers = [helper for path, tree in trees.items() for helper in _helpers(tree, texts[path])]
    anys = sum(len(re.findall(r"\bAny\b", text)) for text in texts.values())
    return {
        "packages": sum(path.name == "__init__.py" for path in texts),
        "files": len(texts),
        "lines": len(lines),
        "lines that are neither blank nor comments": sum(
            bool(line) and line[0] != "#" for line in lines
        ),
        "functions": len(lengths),
        "lines of a function: median, p95, longest": (
            f"{statistics.median(lengths):.0f}, {lengths[int(0.95 * len(lengths))]}, {lengths[-1]}"
        ),
        "private functions called once": len(helpers),
        "... of a single statement": sum(helpers),
        "public functions and classes": sum(_public(path, tree) for path, tree in trees.items()),
        "Any per 1,000 lines": f"{1000 * anys / len(lines):.1f}",
        "broad excepts": sum(
            isinstance(node, ast.ExceptHandler) and _is_broad(node) for node in nodes
        ),
        "comparisons of the type of an entry": sum(_compares_type(node) for node in nodes),
        "class names used more than once": sum(count > 1 for count in classes.values()),
    }


def _public(path: Path, tree: ast.Module) -> int:
    """Functions and classes of a module without a leading underscore; none of an internal module."""
    if path.name.startswith("_") and not path.name.startswith("__"):
        return 0
    return sum(
        isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"
        for node in tree.body
    )


def _helpers(tree: ast.Module, text: str) -> list[bool]:
    """Of each private function that its module names once beside its definition: whether it is one
    statement.
    """
    found = []
    for node in tree.body:
        is_private = isinstance(node, ast.FunctionDef) and re.match("_[^_]", node.name)
        if is_private and len(re.findall(rf"\b{node.name}\b", text)) == 2:
            body = [each for each in node.body if not _is_docstring(each)]
            found.append(len(body) == 1 and body[0].lineno == body[0].end_lineno)
    return found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_broad(node: ast.ExceptHandler) -> bool:
    return node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")


def _compares_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and bool(
        re.search(r"\['type'\]|\.get\('type'", ast.unparse(node))
    )


if __name__ == "__main__":
    columns = [counts(Path(folder)) for folder in sys.argv[1:]]
    for name in columns[0]:
        print(f"{name:<42}", *(f"{column[name]!s:>14}" for column in columns))
