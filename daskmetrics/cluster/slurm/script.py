"""The command of a worker, and the script of its job: pure functions of the profile, so that they
can be read before anything is submitted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dask.utils import parse_bytes

from daskmetrics.cluster import _preload as preload
from daskmetrics.cluster import _worker_process as worker_process
from daskmetrics.cluster._dask_config import WORKER_SETTINGS
from daskmetrics.cluster.pinning import THREADS
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.text import parse_walltime

RESOURCES = {"GPU": 1, "CPU": 1}
"""What each worker offers: encoding takes GPU, scoring CPU, so that a probe never holds a GPU."""

WORKER_VARIABLES = {
    f"DASK_{key.upper().replace('.', '__')}": str(value) for key, value in WORKER_SETTINGS.items()
}
"""Variables of workers in Slurm jobs, which do not inherit this process's configuration."""

DEATH_TIMEOUT = 60  # seconds without a scheduler after which a worker ends, and its job with it
# seconds before its job's time limit at which a worker takes no more work; less for a short job
EARLY = 60.0
EXCLUDE = "--exclude="
PROLOGUE_ENDED = "The prologue ended with status"  # a line of the job's log


@dataclass(frozen=True)
class LaunchInfo:
    """What becomes known only when a job is submitted."""

    scheduler: str = "tls://SCHEDULER:PORT"  # address that the worker connects to
    # its name; the processes of a whole-node job get the suffixes ``-0``, ``-1``, ...
    worker: str = "NAME"
    run: str = "RUN"  # the run that the job belongs to; part of the job's name
    owner: str = "OWNER"  # word of the driver's; with the worker's name it is the job's comment
    python: str = "python"  # the interpreter, on a file system that the nodes share with the driver
    # files of the certificates, by the options of ``dask worker``: ``ca-file``, ``cert``, ``key``
    tls: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()  # nodes that break jobs

    @property
    def comment(self) -> str:
        """The job's comment, by which it is found without its id."""
        return f"{self.owner}/{self.worker}"


def worker_command(
    scheduler: str,
    name: str,
    memory: str | None,
    interface: str | None,
    resources: Mapping[str, int] = RESOURCES,
) -> list[str]:
    """The command, after that of Python, of a worker under a nanny.

    It runs one unit at a time; the nanny restarts it.
    """
    words = [
        # -P: no module of the working folder replaces one of Python's
        *("-P", "-m", worker_process.__name__, scheduler),
        *("--name", name),
        *("--preload", preload.__name__),
        *("--nthreads", "1"),
        *("--nanny", "--death-timeout", str(DEATH_TIMEOUT), "--memory-limit", memory or "0"),
        # a worker's pages would be open to the network
        *("--no-dashboard", "--dashboard-address", "127.0.0.1:0"),
        *("--resources", ",".join(f"{name}={amount}" for name, amount in resources.items())),
    ]
    if interface:
        words += ["--interface", interface]
    return words


def script(pool: WorkerPool, launch: LaunchInfo | None = None) -> str:
    """The job script of a pool, exactly as ``sbatch`` gets it.

    Without ``launch``, words in capitals stand for what only the running scheduler knows.

    >>> print(script(*pools(Cluster(kind="slurm", gpus_per_job=4))).splitlines()[-1][:61])
    exec python -P -m daskmetrics.cluster._worker_process tls://S
    """
    profile = pool.profile
    launch = launch or LaunchInfo()
    exports = {
        **dict.fromkeys(THREADS, str(profile.threads)),
        **WORKER_VARIABLES,
        **profile.exports,
    }
    # without a limit of ours Slurm's own applies
    memory = None
    if profile.memory:
        memory = str(parse_bytes(profile.memory))
    command = [
        *("exec", launch.python),
        *worker_command(launch.scheduler, launch.worker, memory, profile.interface, pool.resources),
        *("--preload-nanny", preload.__name__),
    ]
    if pool.processes > 1:
        exports[preload.GPU_PER_WORKER] = "1"
        command += ["--nworkers", str(pool.processes)]
    for name, file in launch.tls.items():
        command += [f"--tls-{name}", file]
    lines = [
        *(f"export {name}={shlex.quote(value)}" for name, value in exports.items()),
        # Slurm sets this variable only since 23.02
        f"end=${{SLURM_JOB_END_TIME:-$(($(date +%s) + {parse_walltime(profile.walltime)}))}}",
        f"export SLURM_JOB_END_TIME=$((end - {pool.early}))",
        *profile.prologue,
        *([f'echo "{PROLOGUE_ENDED} $?."'] if profile.prologue else []),
        # exec, so that signals of Slurm reach the worker itself
        shlex.join(command),
    ]
    return batch_script(_directives(pool, launch), lines)


def batch_script(directives: Iterable[str], commands: Iterable[str]) -> str:
    """The text of a job's script; ConfigError if a line would become several."""
    sbatch = (f"#SBATCH {directive}" for directive in directives)
    lines = ["#!/usr/bin/env bash", *sbatch, "", *commands, ""]
    for line in lines:
        if not line.isprintable():
            raise ConfigError(
                "This line cannot be part of a job script, because it has line breaks or control "
                f"characters: {line!r}. Rename the folder that it names, or choose another one."
            )
    return "\n".join(lines)


def output(folder: str | Path, name: str) -> str:
    """The directive for a job's log.

    ``%x`` and ``%j`` in its name are the job's name and id.

    >>> output("/data/my runs/50%", "%j.log")
    '--output="/data/my runs/50%%/%j.log"'
    """
    if not str(folder).isprintable() or set(str(folder)) & set("\"'\\"):
        raise ConfigError(
            f"The folder '{folder}' cannot be written into a job script: choose one whose path has "
            "no quotes, backslashes, line breaks and control characters."
        )
    return f'--output="{str(folder).replace("%", "%%")}/{name}"'


def job_name(run: str) -> str:
    """The name of the worker jobs of a run.

    >>> job_name("my run")
    'daskmetrics-my-run'
    """
    # a run may have any name, and this one becomes a line of a script and part of a path
    return "daskmetrics-" + re.sub(r"[^A-Za-z0-9._-]", "-", run)[:96]


def _directives(pool: WorkerPool, launch: LaunchInfo) -> Iterator[str]:
    profile = pool.profile
    yield f"--job-name={job_name(launch.run)}"
    yield f"--comment={launch.comment}"
    yield output(profile.logs, "%x-%j.log")
    for name in ("partition", "account"):
        if value := getattr(profile, name):
            yield f"--{name}={value}"
    yield f"--time={profile.walltime}"
    yield from ("--nodes=1", "--ntasks=1", f"--cpus-per-task={profile.threads * pool.processes}")
    if profile.memory:  # by default none: some sites forbid --mem
        size = parse_bytes(profile.memory) * pool.processes
        yield f"--mem={-(-size // 2**20)}M"
    if profile.gpus_per_job:
        gpus = ("--gres=gpu", profile.gpu_type, str(profile.gpus_per_job))
        yield ":".join(filter(None, gpus))
    yield "--no-requeue"  # the supervisor has replaced the job already
    yield from profile.directives  # of two equal ones Slurm takes the last
    if launch.exclude:
        words = [word for word in profile.directives if word.startswith(EXCLUDE)]
        nodes = [*(word.removeprefix(EXCLUDE) for word in words), *launch.exclude]
        yield f"{EXCLUDE}{','.join(nodes)}"


@dataclass(frozen=True)
class WorkerPool:
    """Workers of one kind, started by equal jobs."""

    name: str  # ``gpu`` or ``cpu``; the names of its workers begin with it
    profile: Cluster  # what these workers alone need
    resources: Mapping[str, int]  # what each worker offers to Dask

    @property
    def processes(self) -> int:
        """Worker processes per job."""
        return max(1, self.profile.gpus_per_job)

    @property
    def early(self) -> int:
        """Seconds before its job's time limit at which a worker takes no more work."""
        return round(min(EARLY, parse_walltime(self.profile.walltime) / 20))

    @property
    def memories(self) -> tuple[str | None, ...]:
        """The memory of a worker at first, and after each kill for memory.

        Each time twice as much, up to the largest.

        >>> pools(Cluster(kind="slurm", memory="4GiB", max_memory="10GiB"))[0].memories
        ('4GiB', '8192MiB', '10GiB')
        """
        memory = self.profile.memory
        largest = self.profile.max_memory
        if not memory or not largest:
            return (memory,)
        sizes = [memory]
        size = parse_bytes(memory)
        while 2 * size < parse_bytes(largest):
            size *= 2
            sizes.append(f"{size // 2**20}MiB")
        if size < parse_bytes(largest):
            sizes.append(largest)
        return tuple(sizes)

    def with_memory(self, memory: str | None) -> WorkerPool:
        """The same workers with another memory."""
        return replace(self, profile=self.profile.model_copy(update={"memory": memory}))


def pools(profile: Cluster) -> tuple[WorkerPool, ...]:
    """The pools of a profile: the main one, and one for scoring.

    With scoring workers, a worker of the main pool offers only GPU: a scoring unit then never holds
    a GPU.

    >>> [pool.resources for pool in pools(Cluster(kind="slurm", scoring={"workers": 4}))]
    [{'GPU': 1}, {'CPU': 1}]
    """
    main, second = "cpu", "scoring"
    if profile.gpus_per_job:
        main, second = "gpu", "cpu"
    if profile.scoring is None:
        return (WorkerPool(main, profile, RESOURCES),)
    # what the main jobs demand of nodes is not taken over: it may be a GPU
    demands = {"gpus_per_job": 0, **dict(profile.scoring)}
    if profile.scoring.partition is None:
        demands["partition"] = profile.partition
    scoring = profile.model_copy(update=demands)
    return WorkerPool(main, profile, {"GPU": 1}), WorkerPool(second, scoring, {"CPU": 1})
