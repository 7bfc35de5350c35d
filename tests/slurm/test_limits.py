from __future__ import annotations

from daskmetrics.cluster.slurm._partitions import account_limits, parse_limits

# as sacctmgr of Slurm 22.05.8 printed them, from a slurmdbd with MariaDB 10.11
ASSOCIATIONS = """\
Account|Partition|QOS|MaxJobs|MaxSubmit|MaxWall|MaxTRES|GrpTRES
proj42||long,normal|20|50|1-00:00:00||cpu=512
root||normal|||||
"""
QOS = """\
Name|MaxJobsPU|MaxSubmitPU|MaxWall|MaxTRES|MaxTRESPU|GrpTRES
normal||||||
long|8|100|2-00:00:00||cpu=256,node=8|node=32
"""


def test_the_limits_of_accounts_and_their_qos_are_read():
    assert parse_limits(ASSOCIATIONS, QOS) == (
        "account proj42: MaxJobs=20, MaxSubmit=50, MaxWall=1-00:00:00, GrpTRES=cpu=512",
        "QOS long: MaxJobsPU=8, MaxSubmitPU=100, MaxWall=2-00:00:00, MaxTRESPU=cpu=256,node=8, GrpTRES=node=32",
    )


def test_a_qos_that_no_account_may_use_does_not_count():
    assert parse_limits(ASSOCIATIONS.replace("long,", ""), QOS) == (parse_limits(ASSOCIATIONS, QOS)[0],)


def test_without_accounting_there_are_no_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert account_limits() == () == parse_limits("", "")
