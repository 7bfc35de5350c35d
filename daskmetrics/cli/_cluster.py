"""Commands about places to run: write a profile, show it, print its job script."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from daskmetrics.cli._common import PATH, Sections, example, say
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table


@click.group(
    cls=Sections,
    epilog=example("daskmetrics cluster show l40s", "daskmetrics cluster init -o site.yaml"),
)
def cluster() -> None:
    """Write a profile of a place to run, show its keys and job script."""


@cluster.command(epilog=example("daskmetrics cluster show l40s"))
@click.argument("profile")
def show(profile: str) -> None:
    """Show each key of PROFILE with its value and where it comes from.

    PROFILE is a name or a YAML file. Keys that it leaves open can come from Dask's configuration.
    """
    import json

    from daskmetrics.config.loading import cluster_origins

    loaded, origins = cluster_origins(profile)
    rows = []
    for key, value in loaded.model_dump(mode="json").items():
        text = value if isinstance(value, str) else json.dumps(value)
        rows.append((key, text, origins.get(key, "default")))
    rows.sort(key=lambda row: row[2] == "default")
    Table(("key", "value", "from"), rows).show()


@cluster.command(epilog=example("daskmetrics cluster script l40s"))
@click.argument("profile")
def script(profile: str) -> None:
    """Print the job scripts of PROFILE.

    PROFILE is a name or a YAML file. The output is exactly what Slurm gets, except for words in
    capitals: they stand for values that only a running scheduler knows.
    """
    from daskmetrics import config

    loaded = config.cluster(profile)
    if loaded.kind != "slurm":
        raise ConfigError(
            f"Profile '{profile}' is of kind '{loaded.kind}', which has no jobs. See: daskmetrics "
            "list profiles"
        )
    from daskmetrics.cluster.slurm.script import LaunchInfo, pools
    from daskmetrics.cluster.slurm.script import script as job_script

    loaded = loaded.model_copy(update={"logs": str(Path(loaded.logs).absolute())})
    tls = {"ca-file": "CA", "cert": "CERTIFICATE", "key": "KEY"}
    launch = LaunchInfo(python=sys.executable, tls=tls)
    say("\n".join(job_script(pool, launch) for pool in pools(loaded)).removesuffix("\n"))


@cluster.command(epilog=example("daskmetrics cluster init -o site.yaml"))
@click.option("-o", "--output", type=PATH, help="File to write.  [default: print it]")
def init(output: Path | None) -> None:
    """Write a profile for the Slurm of this machine.

    It is made from the output of sinfo and scontrol; the site's other partitions are listed in
    comments.
    """
    from daskmetrics.cluster.slurm import partitions
    from daskmetrics.cluster.slurm.commands import slurm

    if output is not None and output.exists():
        raise ConfigError(f"'{output}' already exists: choose another file, or remove it.")
    listing = slurm("sinfo", "--format=%P %.11l %.5a %.6D %.5c %.8m %.20G %.10T %f")
    partition, node = partitions.choose(partitions.read_partitions())
    interface = partitions.interface_to(node.name)
    text = partitions.proposed_profile(partition, node, interface, listing)
    if output is None:
        say(text)
        return
    output.write_text(f"{text}\n", encoding="utf-8")
    say(f"Wrote '{output}'. Read it, then test it with: daskmetrics doctor {output} --worker")
