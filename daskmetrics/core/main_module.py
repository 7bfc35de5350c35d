"""Child processes that do not import the main module of the program that starts them.

`multiprocessing` makes each process that it spawns import the caller's main module first. A script
without ``if __name__ == "__main__":`` would run again in each of them, and one that is read from
standard input would not be found. What workers need of the main module travels by value, as
cloudpickle sends its functions and classes.
"""

from __future__ import annotations

import os
import pkgutil
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import spawn
from pathlib import Path
from typing import Any

MAIN_KEYS = ("init_main_from_name", "init_main_from_path")
"""What tells a new process to import the main module, in the data that prepare it."""

MAIN = "__main__"

CODE = "DASKMETRICS_CODE"
"""The variable with the folders of a user's own modules, for the workers that a process starts."""

_lock = threading.Lock()
_blocks_by_name: Counter[str] = Counter()


@contextmanager
def main_not_imported(process_name: str) -> Iterator[None]:
    """Within this block, new processes of this name import no main module.

    All others do as before.

    Blocks of several threads may overlap, and end in any order.
    """
    _wrap_preparation()
    with _lock:
        _blocks_by_name[process_name] += 1
    try:
        yield
    finally:
        with _lock:
            _blocks_by_name[process_name] -= 1


def import_from(*folders: str | Path) -> None:
    """Let this process import a user's modules from folders, and from `CODE`.

    The folders are added to `CODE`.

    They are searched last: a ``queue.py`` there replaces no module of Python or of a package. A
    folder in which every user can write, such as ``/tmp``, is left out: one of them could add a
    module that a library imports where it is installed.
    """
    earlier = filter(None, os.environ.get(CODE, "").split(os.pathsep))
    resolved = (str(Path(folder).resolve()) for folder in folders)
    code = [folder for folder in dict.fromkeys([*earlier, *resolved]) if not is_shared(folder)]
    os.environ[CODE] = os.pathsep.join(code)
    sys.path += [folder for folder in code if folder not in sys.path]


def is_shared(folder: str | Path) -> bool:
    """Whether every user of this machine can write into a folder."""
    with suppress(OSError):
        return bool(Path(folder).stat().st_mode & stat.S_IWOTH)
    return False


@cache
def _wrap_preparation() -> None:
    """Replace the function that prepares a process; there is no option for it."""
    preparation_data = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = preparation_data(name)
        if _blocks_by_name[name] > 0:
            for key in MAIN_KEYS:
                data.pop(key, None)
        return data

    spawn.get_preparation_data = get_preparation_data


def state_with_main_object(value: object, reference: str) -> dict[str, Any]:
    """The state of a value for its pickle, with its object of the main module.

    That is the object at ``module:name``, if it is in the main module.

    The object is an entry of its own, under ``__main__:name``. Pickled with cloudpickle, it travels
    by value.
    """
    state = dict(vars(value))
    module, _, name = reference.partition(":")
    if module == MAIN:
        outermost = f"{MAIN}:{name.partition('.')[0]}"  # the class, of one of its methods
        state[outermost] = pkgutil.resolve_name(outermost)
    return state


def restore_state(value: object, state: Mapping[str, object]) -> None:
    """Give a value its state, and the main module the object."""
    for name, content in state.items():
        module, separator, object_name = name.partition(":")
        if separator:
            setattr(sys.modules[module], object_name, content)
        else:
            vars(value)[name] = content
