"""Verbs about places to run: their profiles, their job scripts, and whether they work."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import end_as_by_ctrl_c, friendly, table
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.config import Cluster


@click.group()
def cluster() -> None:
    """Profiles of places to run: list them, write one, read its job script, try it."""


@cluster.command("list")
@friendly
def list_() -> None:
    """List the profiles."""
    import dask.config

    from daskmetrics import config

    folder = config.folder() / "clusters"
    profiles = {path: config.cluster(str(path)) for path in sorted(folder.glob("*.yaml"))}
    rows = [(path.stem, *_facts(profile), path.name) for path, profile in profiles.items()]
    table(("profile", "kind", "workers", "each with", "partition", "from"), rows)
    click.echo(f"These files lie in {folder}. A file of your own does as well: --cluster FILE.")
    if partitions := dask.config.get("daskmetrics.cluster", {}):
        keys = ", ".join(f"{key}: {value}" for key, value in partitions.items())
        click.echo(f"Your site's settings, which count for more than a profile's (dask's configuration): {keys}")


def _facts(profile: Cluster) -> tuple[str, str, str, str]:
    gpu = f"1 {profile.gpu_type or 'GPU'}, " if profile.kind == "slurm" and profile.gpus_per_job else ""
    memory = f", {profile.memory}" if profile.memory else ""
    each = f"{gpu}{profile.threads} CPU{'s' if profile.threads > 1 else ''}{memory}"
    return profile.kind, str(profile.workers), each, profile.partition or ""


@cluster.command()
@click.argument("profile")
@friendly
def script(profile: str) -> None:
    """Print the job scripts of PROFILE.

    PROFILE is a name or a YAML file. It is what Slurm gets, but for words in capitals: they stand for what only a
    running scheduler knows.
    """
    from daskmetrics import config
    from daskmetrics.cluster.slurm._script import LaunchInfo, pools
    from daskmetrics.cluster.slurm._script import script as text

    wanted = config.cluster(profile)
    if wanted.kind != "slurm":
        raise ConfigError(f"Profile '{profile}' is of kind '{wanted.kind}', which has no jobs. See: cluster list")
    wanted = wanted.model_copy(update={"logs": str(Path(wanted.logs).absolute())})
    post = LaunchInfo(python=sys.executable, tls={"ca-file": "CA", "cert": "CERTIFICATE", "key": "KEY"})
    click.echo("\n".join(text(wanted, pool, post) for pool in pools(wanted)), nl=False)


@cluster.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write it.  [default: print it]")
@friendly
def init(output: Path | None) -> None:
    """Write a profile for the Slurm that is here.

    It is made from what sinfo and scontrol say, with what else there is as comments.
    """
    from daskmetrics.cluster.slurm import _partitions as partitions
    from daskmetrics.cluster.slurm import _profile as proposal

    if output is not None and output.exists():
        raise ConfigError(f"'{output}' is there already: name another file, or remove it.")
    found = partitions.read_site()
    _, nodes = proposal.choose(found)
    text = proposal.profile_text(found, partitions.interface_to(nodes.names))
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    click.echo(f"Wrote '{output}'. Read it, then try it with: daskmetrics cluster test {output}")


@cluster.command("test")
@click.argument("profile")
@friendly
def test_(profile: str) -> None:
    """Try PROFILE with one worker.

    PROFILE is a name or a YAML file. A worker is brought up, all that a run needs of it is tried, and it goes. The
    exit code is 0 if everything is as it should be, 1 if a check failed, 2 if no worker came up.
    """
    from daskmetrics import config
    from daskmetrics.cluster import _selftest as selftest
    from daskmetrics.cluster import connect
    from daskmetrics.core._workers import workers
    from daskmetrics.execution import _handshake as handshake

    wanted = config.cluster(profile, workers=1, fewest=None, scoring=None)
    click.echo(f"Waiting for one worker ({wanted.kind}) ...", err=True)
    end_as_by_ctrl_c()
    began = time.perf_counter()
    with connect(wanted, "trial", lambda text: click.echo(text, err=True)) as client:
        name = next(iter(workers(client).values()))["name"]
        done = [selftest.Check("worker", selftest.Verdict.OK, time.perf_counter() - began, f"'{name}' has arrived")]
        done += selftest.checks(client, wanted, handshake.question(), handshake.require_same)
    table(
        ("check", "", "took", "what"),
        [(each.name, each.verdict.value, f"{each.seconds:.2f} s", each.told) for each in done],
    )
    if any(each.verdict is selftest.Verdict.FAILED for each in done):
        sys.exit(1)


VERBS = (cluster,)
