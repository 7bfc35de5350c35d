"""Slurm as the batch system of the supervisor."""

from daskmetrics.cluster.slurm._commands import cancel, draining, queue, rehearse, submit
from daskmetrics.cluster.slurm._script import script

__all__ = ["CANCEL_ON_EXIT", "NAME", "cancel", "draining", "queue", "rehearse", "script", "submit"]

NAME = "Slurm"

# it reads ids until the pipe closes, which the system does even after a SIGKILL of the driver; then it looks for jobs
# whose ids it does not know, by their name and the first word of their comment
CANCEL_ON_EXIT = """
trap '' HUP INT TERM
while read -r id; do ids="$ids $id"; done
[ -z "$ids" ] || scancel $ids
others=$(squeue --noheader --user="$(id -u)" --name="$1" --format='%i %k' | while read -r id comment; do
  case $comment in "$2"/*) echo "$id" ;; esac
done)
[ -z "$others" ] || scancel $others
rm -rf "$3"
"""
