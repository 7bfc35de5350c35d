"""Second views: never the same text, always the same view."""

import subprocess
import sys
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.metrics.views import second_view, view

WORDS = st.lists(st.sampled_from(["a", "b", "cat", "Dog", "é", "..."]), max_size=30)


@given(words=WORDS, seed=st.integers(0, 5))
def test_views_differ_where_possible_and_add_no_word(words, seed):
    text = " ".join(words)
    views = [view(text, seed, number) for number in range(4)]
    assert views[:2] == [text, second_view(text, seed)]
    assert len(set(views)) == (4 if len(set(words)) > 1 else 1)
    assert all(Counter(each.split()) <= Counter(words) for each in views)


def test_white_space_alone_does_not_make_a_view():
    assert second_view("one\n two", 0).split() != ["one", "two"]
    assert second_view(" one  one ", 0) == " one  one "
    assert second_view("", 0) == ""


def test_text_and_seed_decide_on_every_machine():
    text = "a view is a function of its text and of the seed of the run"
    assert len({second_view(text, seed) for seed in range(50)}) > 25
    assert len({view(text, 0, number) for number in range(16)}) == 16
    code = f"from daskmetrics.metrics.views import second_view; print(second_view({text!r}, 3))"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert again.stdout.strip() == second_view(text, 3)
