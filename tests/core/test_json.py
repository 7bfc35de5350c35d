from __future__ import annotations

import pytest

from daskmetrics.core.serialization import parse


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "[1", b"\xff"], ids=range(5)
)
def test_what_is_no_document_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse(text)
