"""Which prompt a text gets, beside mteb's own choice and that of sentence-transformers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.config.prompts import Prompts, check_names, configured
from daskmetrics.core.errors import ConfigError

NAMES = ["query", "document", "passage", "STS", "STS-query", "STS12", "STS12-query"]
NAMES += ["Retrieval", "NFCorpus-document", "x"]


@given(
    names=st.sets(st.sampled_from(NAMES)),
    default=st.none() | st.just("x"),
    task=st.sampled_from([("STS12", "STS"), ("NFCorpus", "Retrieval")]),
    role=st.sampled_from([None, "query", "document"]),
)
def test_the_choice_is_that_of_mteb_and_sentence_transformers(names, default, task, role):
    mteb = pytest.importorskip("mteb.models.abs_encoder", reason="needs mteb")
    from mteb.types import PromptType

    # both roles are always there
    texts = {"query": "", "document": ""} | {name: f"<{name}>" for name in names}
    metadata = type("Metadata", (), {"name": task[0], "type": task[1]})
    name = mteb.get_prompt_name(texts, metadata, PromptType(role) if role else None)
    expected = texts[name] if name else texts.get(default or "", "") if role is None else ""
    kind = {"STS": "sts", "Retrieval": "retrieval"}[task[1]]
    assert Prompts(texts, default).of(role, task[0], kind) == expected


def test_one_prompt_is_for_all_texts_and_an_empty_one_is_none():
    prompts = configured("Instruct: ")
    assert {prompts.of(role) for role in ("query", "document", None)} == {"Instruct: "}
    assert prompts.of("query", "STS12", "sts") == "Instruct: "
    empty = Prompts({"query": "", "document": ""})
    assert (empty.as_dict(), empty.summary) == ({}, "none")


def test_a_prompt_for_nothing_is_an_error():
    known = ["query", "passage", "default", "STS12", "STS12-query", "STS", "sts"]
    known += ["PairClassification-document"]
    check_names(dict.fromkeys(known, "x"), ["STS12"], ["sts", "pair_classification"])
    for name in ("querry", "STS13", "sts-passage", "documents"):
        with pytest.raises(ConfigError, match=f"prompt '{name}'"):
            check_names({name: "x"}, ["STS12"], ["sts"])
