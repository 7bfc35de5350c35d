"""A first configuration with comments, as YAML: what `daskmetrics init` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from daskmetrics.config._checkpoints import is_hub_id
from daskmetrics.config._schema import name_of
from daskmetrics.core.errors import ConfigError

_MODEL = """\
  - name: {name}
    source: {source}
    revisions: {revisions}
    layers: all # or blocks, without the embeddings; or a list such as [4, 5, 6]
"""

_FILE = """\
# {name}: which layer of which checkpoint gives the best embeddings?
#
#   daskmetrics run {path} --dry-run    # counts, disk and time; nothing is started
#   daskmetrics run {path}              # again to resume
#   daskmetrics best {name}

name: {name} # results are in runs/{name}

models: # each is a folder of one model, a folder with a sub-folder per revision, or a hub id
{models}
# What the texts of a task are scored by. `daskmetrics tasks` lists the built-in ones; others are mteb:NAME,
# preset:layer-by-layer-32, and your own files: file:PATH(text=COLUMN, label=COLUMN).
tasks: {tasks}

# Label-free metrics of every layer: `daskmetrics metrics` lists them, `all` measures them all, `[]` none.
# metrics: [prompt_entropy, curvature, effective_rank]

# Texts on which the metrics are measured: those of Python's library, or a file with one prompt per line.
# corpus: {{source: prompts.txt, prompts: 500}}

search:
  budget: {budget} # a share of the cost of every score; auto: all of a small grid, else 0.3; 1: every score
  # confidence: 0.95 # end earlier, when the best arm is known with this probability

cluster: {cluster} # where to run: a profile of `daskmetrics cluster list`, or your own YAML file
"""


def starter(path: Path, sources: Sequence[str], tasks: Sequence[str], budget: str, cluster: str) -> str:
    """The text of a configuration that is to be written to a path, which gives it its name.

    >>> text = starter(Path("mine.yaml"), ["EleutherAI/pythia-14m"], ["stdlib:demo"], "auto", "local")
    >>> print(text.splitlines()[6])
    name: mine # results are in runs/mine
    """
    name = name_of(path.stem)
    names = [name_of(str(Path(source).expanduser().resolve())) for source in sources]
    models = [
        _MODEL.format(
            name=each if names.count(each) == 1 else f"{each}-{number}",
            source=_quoted(source),
            revisions="main # or all, log, every 1000, every 1000 to 143000; or a list of names"
            if is_hub_id(source)
            else "all # or log, every 1000, every 1000 to 143000; or a list of names",
        )
        for number, (each, source) in enumerate(zip(names, sources, strict=True), 1)
    ]
    lists = f"[{', '.join(map(_quoted, tasks))}]"
    return _FILE.format(
        name=name, path=path, models="".join(models), tasks=lists, budget=budget, cluster=_quoted(cluster)
    )


def require_source(source: str) -> str:
    """The source of a model; ConfigError if it is neither a folder nor looks like a hub id."""
    if not Path(source).expanduser().is_dir() and not is_hub_id(source):
        raise ConfigError(f"--model '{source}' is neither a folder nor a hub id such as EleutherAI/pythia-14m.")
    return source


def _quoted(text: str) -> str:
    """A text as a YAML scalar: every JSON text is one."""
    return text if re.fullmatch(r"[A-Za-z][\w./-]*", text) else json.dumps(text, ensure_ascii=False)
