"""One mistake of each stage of each command; the rooms' own tests show all their messages."""

from __future__ import annotations

import pytest

from tests.cli.calling import call, fails

MISTAKES = [
    ("run wrong.yaml", "Unknown key 'metrcs'. Did you mean 'metrics'?"),
    ("run config.yaml --set search.policy=rase", "Unknown policy 'rase'. Did you mean 'race'?"),
    ("run config.yaml --set corpus.source=none.txt", "none.txt"),
    ("run config.yaml --cluster none.yaml", "Unknown cluster profile 'none.yaml'"),
    ("run config.yaml --submit", "name a Slurm profile with --cluster"),
    ("run config.yaml --submit --in-job", "exclude each other: choose one"),
    ("run config.yaml --in-job", "--in-job needs a Slurm allocation"),
    ("train untrained.yaml", "no model has a 'train' section"),
    ("train config.yaml --ranks 2", "is a configuration: its ranks and arguments are in it"),
    (
        "train config.yaml --submit --set models.0.train.seed=9",
        "name a Slurm profile with --cluster",
    ),
    ("train config.yaml --set models.0.train.width=17", "width 17 is not divisible by 2 heads"),
    ("status runs/none", "No run in 'runs/none'"),
    ("status --follow runs/none", "No run in 'runs/none'"),
    ("statsu", "Did you mean 'status'?"),
    ("list tasks stdlib:ordr --json", "Did you mean 'stdlib:order'?"),
    ("plan --json --submit 1", "omit --json"),
    ("plan config.yaml --price nan", "'nan' is not a number, or DEVICE=NUMBER"),
    ("bench config.yaml --price=-1", "'-1' is not a number from 0"),
    ("run config.yaml --folder config.yaml", "'config.yaml' is a file"),
    ("run config.yaml --folder ''", "the path is empty"),
    ("run config.yaml --folder .", "holds other files and no run. Choose a new or empty --folder"),
    ("map bench.py:step --iterations 3 --folder ''", "the path is empty"),
    ("cluster script local", "is of kind 'local', which has no jobs"),
    ("cluster init -o config.yaml", "already exists"),
    ("map bench.py:stepp --iterations 3", "Did you mean 'step'?"),
    ("map bench.py:step", "either --iterations N, or --items FILE"),
    ("map bench.py:step --iterations 3 --items a.csv", "either --iterations N, or --items FILE"),
    ("map bench.py:step --iterations 3 --cluster slurm.yaml --gpus-per-worker 2", "has one GPU"),
    ("map bench.py:step --iterations 3 --submit", "name a Slurm profile with --cluster"),
    ("init --yes", "name its folder or hub id with --model"),
    ("init --yes --model ./nowhere", "'./nowhere' is neither a folder nor a hub id"),
    ("init --yes --model a/b --text body", "add --data FILE"),
    ("init --yes --model a/b --data reviews.csv --text bdy", "bdy"),
    ("init --yes --model a/b -o reviews.csv", "already exists"),
    ("init --yes --model a/b -o none/mine.yaml", "No folder 'none'"),
    ("runs export none", "No run in 'none'"),
    ("runs worker none", "No run in 'none'"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_a_mistake_is_one_message_with_code_2_and_starts_nothing(place, line, message):
    before = sorted(path for path in place.iterdir() if path.name != "__pycache__")
    done = call(place, line)
    assert fails(done, message), done.output
    assert sorted(path for path in place.iterdir() if path.name != "__pycache__") == before


SENTENCE = "Run on the cluster's login node, or with: --cluster local"


@pytest.mark.parametrize(
    "line",
    [
        "cluster init -o site.yaml",
        "run --cluster l40s",
        "run --cluster l40s --submit",
        "map bench.py:step --iterations 1 --cluster l40s",
    ],
)
def test_each_command_says_in_one_sentence_that_slurm_is_missing(place, line):
    done = call(place, line, PATH=str(place))
    (error,) = [line for line in done.stderr.splitlines() if "Error" in line]
    assert done.exit_code in (1, 2) and SENTENCE in error, done.output
    assert "is not on PATH" in error
    assert not (place / "site.yaml").exists()


def test_a_plan_without_slurm_compares_the_other_profiles(place):
    done = call(place, "plan --profiles l40s,local", PATH=str(place))
    assert done.exit_code == 0 and "Not possible  1: l40s: " in done.stdout
    assert "is not on PATH" in done.stdout and "Option 2 is the only one" in done.stdout


# what every command of Slurm 22 prints on a machine without slurm.conf and without a controller in
# the DNS
NO_SOURCE = """#!/bin/sh
echo "sinfo: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host" >&2
echo "sinfo: fatal: Could not establish a configuration source" >&2
exit 1
"""


def test_a_slurm_without_a_configuration_is_none(place):
    (place / "sinfo").write_text(NO_SOURCE)
    (place / "sinfo").chmod(0o755)
    done = call(place, "cluster init", PATH=str(place))
    assert SENTENCE in done.stderr and "Slurm is not configured on this machine" in done.stderr
