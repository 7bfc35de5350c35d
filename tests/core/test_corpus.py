import subprocess
import sys
from pathlib import Path

import pytest

from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import ConfigError

ELSEWHERE = """
import sys
from daskmetrics.core import corpus as corpus
print(corpus.digest(d.name + d.text for d in corpus.stdlib_documents()))
assert not {"smtplib", "imaplib", "wsgiref", "xml", "numpy", "torch", "dask"} & set(sys.modules)
"""


def test_another_process_reads_the_same_documents() -> None:
    command = [sys.executable, "-c", ELSEWHERE]
    there = subprocess.run(command, capture_output=True, text=True, check=True)
    documents = corpus.stdlib_documents()
    assert there.stdout.strip() == corpus.digest(d.name + d.text for d in documents)
    assert len({document.text for document in documents}) == len(documents)
    assert {document.package for document in documents} >= {corpus.TOPICS, *corpus.PACKAGES}


def test_cached_documents_are_those_of_the_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(corpus, "PACKAGES", ("json", "codecs"))
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "none"))
    read = corpus._docstrings()
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
    assert corpus._docstrings() == read
    (kept,) = tmp_path.rglob("*.json")
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_documented", None)  # not parsed again
        assert corpus._docstrings() == read
    kept.write_text(kept.read_text().replace("the", "teh", 1))
    assert corpus._docstrings() == read


def words_of(documents: tuple[corpus.Document, ...]) -> str:
    return " ".join(" ".join(document.text.split()) for document in documents)


def test_a_third_is_held_out_and_shares_no_paragraph() -> None:
    trained = words_of(corpus.train())
    paragraphs = [line for document in corpus.held_out() for line in document.text.splitlines()]
    assert not [line for line in paragraphs if len(line.split()) >= 8 and line in trained]
    assert 0.25 < len(words_of(corpus.held_out())) / len(words_of(corpus.stdlib_documents())) < 0.4


def test_prompts_are_distinct_seeded_and_held_out() -> None:
    drawn = corpus.prompts("stdlib", 256, seed=1)
    assert len(set(drawn)) == 256
    assert drawn == corpus.prompts("stdlib", 256, seed=1) != corpus.prompts("stdlib", 256, seed=2)
    trained = words_of(corpus.train())
    assert not [prompt for prompt in drawn if prompt in trained]


def test_prompts_of_a_file_drop_blank_lines_and_copies(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\n\n  two \n   \none\nthree\n")
    assert sorted(corpus.prompts(str(path), 3, seed=0)) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No corpus file .* Give a text file"),
        (b"\n \n", "has 0 distinct prompts, but 2"),
        (b"one\none\n", "has 1 distinct prompts, but 2 .* Set corpus.prompts to 1"),
        (b"\xff\xfe\n", "is UTF-16 text. Convert it"),
        (b"\xe9\n", "is not UTF-8"),
    ],
)
def test_the_error_for_an_unusable_file_has_a_remedy(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "prompts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        corpus.prompts(str(path), 2, seed=0)


def test_sections_are_cut_at_underlined_headings() -> None:
    text = "Intro.\n\nTitle\n*****\n\nBody.\n\nSub\n===\nMore."
    sections = [corpus._paragraphs(section) for section in corpus._sections(text)]
    assert sections == ["Intro.", "Body.", "More."]
