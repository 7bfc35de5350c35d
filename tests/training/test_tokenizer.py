from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from daskmetrics.training import data as data

TEXTS = ["The quick brown fox jumps over the lazy dog.", "The lazy dog sleeps."] * 8
FITTED = data.fit_tokenizer(TEXTS, vocabulary=300)


@settings(deadline=None)
@given(st.text().filter(lambda text: data.END not in text))
def test_any_text_survives_the_round_trip(text: str) -> None:
    assert FITTED.decode(FITTED.encode(text).ids) == text


def test_transformers_loads_the_same_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data.save_tokenizer(FITTED, tmp_path, max_length=64)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "The lazy dog, naïve: 3 × «4»\n\tend"
    assert loaded(text)["input_ids"] == FITTED.encode(text).ids
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.pad_token_id == loaded.eos_token_id == data.END_ID
    assert loaded.model_max_length == 64
    padded = loaded(["The dog", "The quick brown dog"], padding=True)
    assert padded["attention_mask"][0][-1] == 0
    assert "".join(capfd.readouterr()) == ""
