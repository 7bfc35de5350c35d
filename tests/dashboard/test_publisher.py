"""What the driver sends to the pages."""

from __future__ import annotations

from daskmetrics.core.events import Record
from daskmetrics.core.results import Outcomes, Scored, result_as_json
from daskmetrics.dashboard._publisher import _shown


def test_the_pages_are_not_sent_what_they_do_not_show():
    value = Scored(0.5, 0.1, outcomes=Outcomes("k", 1, bits="gA=="), detail={"f1": 0.4})
    record = Record("key", "tiny@step1/0:task", "score", "ok", value=value, seconds=3.0, worker="w")
    assert _shown(record)["value"] == result_as_json(Scored(0.5, 0.1))
    assert record.value == value
