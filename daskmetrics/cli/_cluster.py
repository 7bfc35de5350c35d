"""Commands about places to run: list profiles, write one, print its job script, test it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from daskmetrics.cli._common import PATH, RUN, Sections, end_as_by_ctrl_c, example, friendly, say
from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.core.errors import ConfigError


@click.group(cls=Sections, epilog=example("daskmetrics cluster list", "daskmetrics cluster test local"))
def cluster() -> None:
    """List profiles of places to run, write one, print its job script, test it."""


@cluster.command("list", epilog=example("daskmetrics cluster list"))
@friendly
def list_() -> None:
    """List the profiles."""
    import dask.config

    from daskmetrics import config

    folder = config.folder() / "clusters"
    rows = []
    for path in sorted(folder.glob("*.yaml")):
        profile = config.cluster(str(path))
        gpu = f"1 {profile.gpu_type or 'GPU'}, " if profile.kind == "slurm" and profile.gpus_per_job else ""
        memory = f", {profile.memory}" if profile.memory else ""
        resources = f"{gpu}{plural(profile.threads, 'CPU')}{memory}"
        rows.append((path.stem, profile.kind, str(profile.workers), resources, profile.partition or "", path.name))
    Table(("profile", "kind", "workers", "resources of each", "partition", "file"), tuple(rows)).show()
    say(f"These files are in {folder}. You can also use your own file: --cluster FILE.")
    if settings := dask.config.get("daskmetrics.cluster", {}):
        keys = ", ".join(f"{key}: {value}" for key, value in settings.items())
        say(f"Settings of your site (from Dask's configuration), which replace those of a profile: {keys}")


@cluster.command(epilog=example("daskmetrics cluster show l40s"))
@click.argument("profile")
@friendly
def show(profile: str) -> None:
    """Show each key of PROFILE with its value and where it comes from.

    PROFILE is a name or a YAML file. Keys that it leaves open can come from Dask's configuration, among them some of
    dask-jobqueue's file jobqueue.yaml.
    """
    import json

    from daskmetrics.config._load import JOBQUEUE, cluster_origins, jobqueue_settings

    loaded, origins = cluster_origins(profile)
    rows = [
        (key, value if isinstance(value, str) else json.dumps(value), origins.get(key, "default"))
        for key, value in loaded.model_dump(mode="json").items()
    ]
    rows.sort(key=lambda row: row[2] == "default")
    unused = [key for key in jobqueue_settings() if key not in JOBQUEUE] if loaded.kind == "slurm" else []
    notes = (f"Not used of jobqueue.yaml: {', '.join(unused)}.",) if unused else ()
    Table(("key", "value", "from"), tuple(rows), notes=notes).show()


@cluster.command(epilog=example("daskmetrics cluster script l40s"))
@click.argument("profile")
@friendly
def script(profile: str) -> None:
    """Print the job scripts of PROFILE.

    PROFILE is a name or a YAML file. The output is exactly what Slurm gets, except for words in capitals: they stand
    for values that only a running scheduler knows.
    """
    from daskmetrics import config
    from daskmetrics.cluster.slurm import _script

    loaded = config.cluster(profile)
    if loaded.kind != "slurm":
        raise ConfigError(f"Profile '{profile}' is of kind '{loaded.kind}', which has no jobs. See: cluster list")
    loaded = loaded.model_copy(update={"logs": str(Path(loaded.logs).absolute())})
    launch = _script.LaunchInfo(python=sys.executable, tls={"ca-file": "CA", "cert": "CERTIFICATE", "key": "KEY"})
    say("\n".join(_script.script(loaded, pool, launch) for pool in _script.pools(loaded)), nl=False)


@cluster.command(epilog=example("daskmetrics cluster init -o site.yaml"))
@click.option("-o", "--output", type=PATH, help="File to write.  [default: print it]")
@friendly
def init(output: Path | None) -> None:
    """Write a profile for the Slurm of this machine.

    It is made from the output of sinfo and scontrol; the site's other partitions are listed in comments. What your
    jobqueue.yaml sets (queue, account, interface, prologue) is used, and named in comments.
    """
    from daskmetrics.cluster.slurm import _partitions as partitions
    from daskmetrics.cluster.slurm._profile import choose, profile_text
    from daskmetrics.config._load import jobqueue_settings

    if output is not None and output.exists():
        raise ConfigError(f"'{output}' already exists: choose another file, or remove it.")
    site = partitions.read_site()
    own = jobqueue_settings()
    partition, nodes = choose(site, own.get("queue"))
    _, address = partitions.first_node(nodes.names)
    text = profile_text(site, partition, nodes, partitions.interface_to(address), own)
    if output is None:
        say(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    say(f"Wrote '{output}'. Read it, then test it with: daskmetrics cluster test {output}")


@cluster.command("test", epilog=example("daskmetrics cluster test local"))
@click.argument("profile")
@friendly
def test_(profile: str) -> None:
    """Test PROFILE with one worker.

    PROFILE is a name or a YAML file. One worker is started, everything that a run needs from it is checked, and it
    ends. The exit code is 0 if no check failed, 1 if one failed, 2 if no worker arrived.
    """
    from daskmetrics import config
    from daskmetrics.cluster import connect
    from daskmetrics.cluster._selftest import SelfTestResult, SelfTestStatus, run_checks
    from daskmetrics.core._machine import workers
    from daskmetrics.execution import _handshake as handshake

    loaded = config.cluster(profile, workers=1, fewest=None, scoring=None)
    say(f"Waiting for one worker ({loaded.kind}) ...", err=True)
    end_as_by_ctrl_c()
    began = time.perf_counter()
    with connect(loaded, "selftest", lambda text: say(text, err=True)) as client:
        name = next(iter(workers(client).values()))["name"]
        arrival = SelfTestResult("worker", SelfTestStatus.OK, time.perf_counter() - began, f"'{name}' has arrived")
        results = [arrival, *run_checks(client, loaded, handshake.question(), handshake.require_same)]
    rows = tuple((each.name, each.status.value, f"{each.seconds:.2f} s", each.message) for each in results)
    Table(("check", "", "took", "result"), rows).show()
    if any(each.status is SelfTestStatus.FAILED for each in results):
        sys.exit(1)


@click.group(cls=Sections, epilog=example("daskmetrics worker join step"))
def worker() -> None:
    """Add workers to a running map by hand."""


@worker.command(epilog=example("daskmetrics worker join step --workers 2"))
@click.argument("run", type=RUN)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many.")
@click.option("--memory", metavar="SIZE", help="Limit of each worker, such as 16GiB.  [default: as of the run's]")
@friendly
def join(run: Path, workers: int, memory: str | None) -> None:
    """Start workers on this machine that take part in the running map RUN.

    They end with the map. With Ctrl-C they leave: each finishes and reports what it runs, and takes nothing more; a
    second Ctrl-C ends them at once. This machine must see the folder of the run and have the same packages.
    """
    from daskmetrics.cluster._join import join

    join(run, workers, memory, lambda line: say(line, err=True))


COMMANDS = (cluster, worker)
