"""Which records count, over random histories of configurations in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.domain.names import Cell, Checkpoint, Suite
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from tests.events import metric, planned, task

REVISIONS = ("step0", "step1", "step2", "step3")


@dataclass(frozen=True)
class Asked:
    """What one configuration asks, and what its files hold; numbers are versions."""

    revisions: tuple[str, ...]  # present, at least one
    contents: tuple[int, ...]  # of the weights of `REVISIONS`
    layers: tuple[int, ...]
    tasks: tuple[tuple[str, int], ...]
    metrics: tuple[tuple[str, int], ...]
    prompts: int
    protocol: int
    seed: int

    @property
    def served(self) -> dict[int, list[str]]:
        """The present revisions of each content; the last one is measured for all."""
        served: dict[int, list[str]] = {}
        for name in self.revisions:
            served.setdefault(self.contents[REVISIONS.index(name)], []).append(name)
        return served

    def plan(self) -> Plan:
        kept = [names[-1] for names in self.served.values()]
        suite = Suite("m", tuple(sorted(kept)), self.layers, 2)
        contents = {names[-1]: content for content, names in self.served.items()}
        return planned(
            [suite],
            [task(name, key=f"{name} {version}") for name, version in self.tasks],
            [replace(metric(name), key=f"{name} {version}") for name, version in self.metrics],
            encodings={
                f"m@{name}": f"{contents[name]} {self.protocol}" for name in suite.revisions
            },
            prompts=str(self.prompts),
            seed=self.seed,
            config={"name": "x", "models": [{"name": "m"}], "protocol": self.protocol},
            aliases={f"m@{names[-1]}": names[:-1] for names in self.served.values() if names[:-1]},
        )

    def truth(self, kind: str, name: str, content: int | None = None) -> object:
        """All that decides what a unit gives."""
        cell = Cell.parse(name) if kind == "score" else None
        checkpoint = cell.arm.checkpoint if cell else Checkpoint.parse(name)
        if content is None:
            content = self.contents[REVISIONS.index(checkpoint.revision)]
        if cell:
            return content, self.protocol, dict(self.tasks).get(cell.task), self.seed, name
        return content, self.protocol, self.prompts, self.layers, self.metrics

    def units(self, plan: Plan) -> Iterator[tuple[str, str, str]]:
        """Key, kind and name of every unit."""
        for checkpoint, key in plan.measure_keys.items():
            yield key, "measure", str(checkpoint)
        for arm in plan.arms:
            for about in plan.tasks:
                yield plan.score_key(arm, about), "score", str(Cell(arm, about.name))


def some(values, least=1):
    """Some of the values, in their order."""
    chosen = st.sets(st.sampled_from(values), min_size=least)
    return chosen.map(lambda kept: tuple(value for value in values if value in kept))


def versions(names):
    return some(names, 0).flatmap(
        lambda kept: st.tuples(*(st.tuples(st.just(name), st.integers(0, 1)) for name in kept))
    )


ASKED = st.builds(
    Asked,
    revisions=some(REVISIONS),
    contents=st.tuples(*[st.integers(0, 5)] * len(REVISIONS)),
    layers=some((0, 1, 2)),
    tasks=versions(("s", "t")),
    metrics=versions(("x", "y")),
    prompts=st.integers(0, 1),
    protocol=st.integers(0, 1),
    seed=st.integers(0, 1),
)
# most steps of a history change one thing
CHANGES = st.fixed_dictionaries(
    {}, optional={name: st.just(name) for name in Asked.__annotations__}
)
STEPS = st.tuples(ASKED, CHANGES, st.randoms(use_true_random=False))


@given(st.lists(STEPS, min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_a_record_counts_if_the_present_plan_would_give_it(steps):
    plans: list[Plan] = []
    records: dict[str, tuple[Record, object, int]] = {}  # by key, with the truth and the weights
    asked, *_ = steps[0]
    for other, changed, random in steps:
        asked = replace(asked, **{name: getattr(other, name) for name in changed})
        plans.append(asked.plan().after(plans))
        for key, kind, name in asked.units(plans[-1]):
            if key not in records and random.random() < 0.7:  # else it was interrupted
                checkpoint = Cell.parse(name).arm.checkpoint if kind == "score" else None
                revision = (checkpoint or Checkpoint.parse(name)).revision
                content = asked.contents[REVISIONS.index(revision)]
                record = Record(key, name, kind, "ok")
                records[key] = record, asked.truth(kind, name), content
    plan = plans[-1]
    present = {key for key, *_ in asked.units(plan)}
    for record, truth, content in records.values():
        counts = plan.wants(record)
        if record.key in present:
            assert counts and truth == asked.truth(record.kind, record.name)
        elif counts:
            # of a checkpoint that is gone, measured and scored as the present ones are
            name = record.name.partition("/")[0]
            assert name not in plan.encodings and name not in plan.measured_as
            assert truth == asked.truth(record.kind, record.name, content)


def test_a_score_has_the_present_name_of_its_task():
    asked = Asked(("step0",), (0,), (0,), (("s", 0),), (("x", 0),), 0, 0, 0)
    plan = asked.plan()
    records = [Record(key, name, kind, "ok") for key, kind, name in asked.units(plan)]
    renamed = replace(plan, tasks=tuple(replace(task, name="new") for task in plan.tasks))
    assert plan.records(records) == records
    names = [record.name for record in renamed.records(records) if record.kind == "score"]
    assert names == ["m@step0/0:new"]
    other = replace(plan, tasks=tuple(replace(task, name="new", key="k") for task in plan.tasks))
    assert not any(record.kind == "score" for record in other.records(records))


def test_records_of_deleted_checkpoints_stay_for_equal_reading():
    whole = Asked(("step0", "step1"), (0, 1, 2, 3), (0, 1), (("s", 0),), (("x", 0),), 0, 0, 0)
    before = whole.plan()
    records = [Record(key, name, kind, "ok") for key, kind, name in whole.units(before)]
    gone = [record for record in records if record.name.startswith("m@step0")]

    def counted(**changes):
        after = replace(whole, revisions=("step1",), **changes).plan().after([before])
        return [record for record in gone if after.wants(record)]

    assert counted() == gone and len(gone) == 3
    assert counted(protocol=1) == []
    assert [record.kind for record in counted(prompts=1)] == ["score", "score"]
    assert [record.kind for record in counted(tasks=(("s", 1),))] == ["measure"]
    assert [record.name for record in counted(layers=(1,))] == ["m@step0/1:s"]
    # a watch goes on: it stays known over plans that never had it
    later = replace(whole, revisions=("step1", "step2")).plan()
    middle = replace(whole, revisions=("step1",)).plan().after([before])
    assert all(map(later.after([before, middle]).wants, gone))
    # and over one that had no checkpoint of its model
    others = [Suite("other", ("step0",), (0,), 2)]
    models = {**before.config, "models": [{"name": "other"}]}
    without = replace(before, suites=tuple(others), encodings={"other@step0": "o"}, config=models)
    assert all(map(later.after([before, without]).wants, gone))


def test_deleted_checkpoints_of_edited_encoders_do_not_count():
    def read_by(version: str, *revisions: str) -> Plan:
        return planned(
            [Suite("m", revisions, (0,), 0)],
            [task("a")],
            encodings={f"m@{name}": f"{name} {version}" for name in revisions},
            config={"name": "x", "models": [{"name": "m", "encoder": "a.py:f"}], "protocol": {}},
            protocols={"m": {"version": version}},
        )

    before = read_by("1", "step0", "step1")
    assert set(read_by("1", "step1").after([before]).deleted) == {"m@step0"}
    assert not read_by("2", "step1").after([before]).deleted
