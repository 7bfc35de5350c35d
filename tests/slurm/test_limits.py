"""Limits of accounts and the chance of success, from a real database of accounts (slurmdbd on
MariaDB).
"""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.cluster.slurm.partitions import account_limits, job_limit, user_accounts
from tests.slurm.site import comes_true, command, needs_slurm, profile, site

pytestmark = [
    *needs_slurm,
    pytest.mark.skipif(
        not shutil.which("slurmdbd"),
        reason="needs slurmdbd and mariadb-server; .ci/run provides both",
    ),
]


@pytest.fixture(scope="module")
def accounts(tmp_path_factory) -> Iterator[Path]:
    """A Slurm of one node, with an account of ours, a QOS that it may use, and one that it may not."""
    with site(tmp_path_factory.mktemp("accounts"), nodes=1, accounts=True) as place:
        for words in (
            "qos long MaxWall=2-00:00:00 MaxJobsPerUser=8 MaxSubmitJobsPerUser=100",
            "qos foreign MaxSubmitJobsPerUser=1",
            "account proj42",
            f"user {getpass.getuser()} account=proj42 qos=normal,long MaxJobs=20 MaxSubmitJobs=50 GrpTRES=cpu=512",
        ):
            command("sacctmgr", "-i", "add", *words.split())
        yield place


def test_the_limits_of_accounts_and_of_their_qos_are_read(accounts, monkeypatch):
    monkeypatch.delenv("USER", raising=False)  # as in a container, or under cron
    assert "proj42" in user_accounts()
    assert account_limits() == [
        ("account proj42", {"MaxJobs": "20", "MaxSubmit": "50", "GrpTRES": "cpu=512"}),
        ("QOS long", {"MaxJobsPU": "8", "MaxSubmitPU": "100", "MaxWall": "2-00:00:00"}),
    ]
    assert job_limit() == 50


def test_a_plan_states_how_our_jobs_ended(accounts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for work in ("true", "false", "true"):
        command("sbatch", "--partition=gpu", "--output=/dev/null", "--wrap", work)
    Path("site.yaml").write_text(yaml.safe_dump(profile(tmp_path)))
    record = "2 of 3 of your jobs on gpu in 30 days ended well (1 failed): 67 % (24 % to 94 %)"

    def is_stated() -> bool:
        done = CliRunner().invoke(main, ["plan", "--profiles", "site.yaml"], catch_exceptions=False)
        return record in " ".join(done.stdout.split())

    assert comes_true(is_stated, 60)
