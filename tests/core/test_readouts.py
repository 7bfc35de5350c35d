from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.core.readouts import POOLINGS, Readout, joined_name

layers = st.sets(st.integers(0, 99), min_size=2, max_size=9).map(lambda each: tuple(sorted(each)))
readouts = st.builds(
    Readout,
    pooling=st.sampled_from(["", *POOLINGS]),
    layers=st.just("") | st.builds(joined_name, st.sampled_from(["mean", "concat"]), layers),
    dimensions=st.sampled_from(["", "1", "256", "pca1", "pca128"]),
)


@given(readouts)
def test_every_readout_has_a_name_that_parses_back_and_needs_no_quotes(readout):
    assert Readout.parse(str(readout)) == readout
    assert all(letter.isalnum() or letter in ",+-_" for letter in str(readout))
    arm = Arm("m", "step8", 3, str(readout))
    assert Arm.parse(str(arm)) == arm


@pytest.mark.parametrize(
    "name",
    [
        "256",
        "last,mean",
        "256d,last",
        "int8",
        "mean3",
        "mean6-3",
        "mean3-4",
        "concat3+3",
        "pca0",
        "x",
        "last,",
    ],
)
def test_what_is_not_the_canonical_name_of_a_readout_is_refused(name):
    with pytest.raises(ConfigError):
        Readout.parse(name)


def test_a_wrong_part_is_answered_with_the_nearest_right_one():
    with pytest.raises(ConfigError, match="Did you mean 'weighted'"):
        Readout("weihgted")


@pytest.mark.parametrize(
    ("name", "corpus", "message"),
    [
        ("mean3-6,512d", 1000, "keeps 512 dimensions, but vectors have 384"),
        ("pca256", 256, r"Set corpus.prompts to 257 or more"),
    ],
)
def test_more_dimensions_than_vectors_or_texts_have_are_refused(name, corpus, message):
    with pytest.raises(ConfigError, match=message):
        Readout.parse(name).check(384, corpus=corpus)
    Readout(dimensions="512", layers="concat3+7").check(384, corpus=10)
    Readout.parse("pca256").check(384, corpus=257)
