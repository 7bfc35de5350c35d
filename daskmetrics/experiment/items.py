"""What encoders read of an item: its text, or what is in its file."""

from __future__ import annotations

import wave
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daskmetrics.checkpoints.digests import digests_of
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import expanded
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.text import listed
from daskmetrics.tasks import Task
from daskmetrics.tasks.file import FileTask

TEXT = "text"  # an item that is no file


def _image(path: Path) -> object:
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def _audio(path: Path) -> tuple[NDArray[np.float32], int]:
    try:
        import soundfile
    except ImportError:
        return _wave(path)
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return samples.mean(1), rate


def _wave(path: Path) -> tuple[NDArray[np.float32], int]:
    with wave.open(str(path)) as file:
        frames = file.readframes(file.getnframes())
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
    if width not in (2, 4):
        raise ValueError(f"it has {8 * width} bits for each sample: pip install soundfile")
    samples = np.frombuffer(frames, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return samples.reshape(-1, channels).mean(1), rate


#: how the file of an item is read, by what an encoder reads
READERS: Mapping[str, Callable[[Path], object]] = {
    "path": lambda path: path,
    "image": _image,
    "audio": _audio,
    "array": lambda path: np.load(path, allow_pickle=False),
}


def path_of(task: Task, text: str) -> Path:
    """The file that a text of one of `tasks_of_items` names."""
    assert isinstance(task, FileTask)
    return task.root / expanded(text)


def tasks_of_items(tasks: tuple[Task, ...], kinds: Collection[str]) -> tuple[Task, ...]:
    """The tasks as models read them, by the kinds of items of these.

    Raises
    ------
    ConfigError
        If the kinds differ, or a task does not have such items.
    """
    if len({*kinds}) > 1:
        raise ConfigError(
            f"The models read items of several kinds: {listed(sorted({*kinds}))}. Compare those of"
            " one kind."
        )
    if TEXT in kinds:
        return tasks
    return tuple(map(_of_files, tasks))


def _of_files(task: Task) -> FileTask:
    """A task whose texts are paths of files: their content is part of its key."""
    if not isinstance(task, FileTask):
        raise ConfigError(
            f"The encoder reads files, and '{task.name}' has texts. Give a table with the paths of"
            " the files, such as file:scans.csv(item=file, label=grade)."
        )
    # a table in memory, which a run writes into its own folder, names files of the current one
    first = expanded(task.texts()[0])
    root = Path(task.path).parent
    if not (root / first).is_file() and first.is_file():
        root = Path.cwd()
    task = replace(task, root=str(root))
    for text in task.texts():
        path = path_of(task, text)
        if not path.is_file():
            raise ConfigError(
                f"'{task.name}' names '{text}', and there is no file '{path}'. Write paths that are"
                " absolute, or relative to the folder of the table or to the current folder."
            )
    return replace(task, items=_content_of(task))


def require_unchanged(task: Task) -> None:
    """Raise a `DataError` if a file of the items has another content than when the run began."""
    if isinstance(task, FileTask) and task.items and task.items != _content_of(task):
        raise DataError(
            f"A file that '{task.name}' names was written again since the run began. Run again,"
            " which reads what is there."
        )


def _content_of(task: FileTask) -> Key:
    files = {text: path_of(task, text) for text in task.whole().texts}  # also those of other parts
    (digests,) = digests_of([files])
    return content_key(sorted(digests.items()))
