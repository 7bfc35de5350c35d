from __future__ import annotations

from daskmetrics.core._events import Record
from daskmetrics.dashboard._publisher import _shown


def test_the_pages_are_not_sent_what_they_do_not_show():
    value = {"score": 0.5, "stderr": 0.1, "outcomes": {"items": "k", "n": 1, "bits": "gA=="}, "detail": {"f1": 0.4}}
    record = Record("key", "tiny@step1/0:task", "score", "ok", value=value, seconds=3.0, worker="w")
    assert _shown(record)["value"] == {"score": 0.5, "stderr": 0.1}
    assert "seconds" not in _shown(record) and record.value == value
