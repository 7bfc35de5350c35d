"""How far a training program is, as the bars that it prints say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# a bar of tqdm, or one of rich, with what stands before it and its steps
_BAR = re.compile(
    r"(?:(?P<text>[^\r\n|%━]*?):?\s+)?(?:\d+%\|[^|]*\||[━╸╺]+)\s*(?P<step>\d+)/(?P<total>[1-9]\d*)\s"
)
# other bars are those of downloads, data, weights and evaluations
_TRAINS = re.compile(r"(?!.*\b(e?val|test))([^a-z]*|.*(epoch|train|step|iter|loss).*)", re.I)
_EPOCH = re.compile(r"epoch\W*(?P<epoch>\d+)(?:\s*(?:/|of)\s*(?P<epochs>\d+))?", re.I)
# in a bar, or in what a Trainer of transformers prints
_NUMBER = re.compile(
    r"(?<!val_)(?P<name>loss|epoch(?='))\w*['\"]?\s*[:=]\s*['\"]?(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)",
    re.I,
)
_CLEARED = re.compile(r" {10,}(\x1b\[A)?")  # of a bar that tqdm does not leave


@dataclass
class _Bars:
    """Bars with as many steps, one after the other."""

    total: int
    step: int  # of the latest bar
    epoch: int | None = None  # that its text names
    before: int = 0  # steps of earlier bars
    begun: int = 1
    jump: int = 0  # the most steps from one line to the next
    unfinished: int = 0  # where the bar before it was left

    def show(self, step: int, epoch: int | None) -> None:
        """Take the next line."""
        if self.step == 0 < self.unfinished < step:
            # the last line of the bar before, which is closed once this one has begun
            self.before += step - self.unfinished
            self.unfinished = 0
            return
        is_next = None not in (epoch, self.epoch) and epoch != self.epoch
        if step == 0 < self.step or is_next:
            self.before += self.step
            self.unfinished = self.step % self.total
            self.begun += 1
        self.jump = max(self.jump, step - self.step)
        self.step = step
        self.epoch = epoch

    def clear(self) -> None:
        """Complete a bar that is closed without its last line."""
        if self.total - self.step <= 2 * self.jump:
            self.step = self.total


class PrintedProgress:
    """Reads how far a program is from the bars that it prints.

    The first bar of a training counts steps. If another one begins before it has moved, that one
    counts them, and the first one epochs. A bar that begins again counts the next epoch.

    >>> printed = PrintedProgress()
    >>> list(printed.read("Epoch 2/3:  25%|##   | 8/32 [00:01<00:03, 7.5it/s, loss=0.5]"))
    [{'loss': 0.5, 'step': 40, 'total': 96, 'epoch': 1.25}]
    >>> list(printed.read("\\nLoading weights: 100%|##| 4/4 [00:01<00:00, 9.1it/s]"))
    []
    >>> list(PrintedProgress().read("{'loss': '3.25', 'epoch': '1.5'}"))
    [{'loss': 3.25, 'epoch': 1.5}]
    >>> list(PrintedProgress().read("Epoch 0/1  ━━━━ 13/13 0:00:27 • 0:00:00 0.49it/s v_num: 0.000"))
    [{'step': 13, 'total': 13, 'epoch': 1.0}]
    """

    def __init__(self) -> None:
        self._bars: dict[int, _Bars] = {}  # by their number of steps
        self._steps: _Bars | None = None  # those that count steps
        self._around: _Bars | None = None  # the bar around them, which counts epochs
        self._epochs: int | None = None  # 0 if there are some, and their number is not known
        self._unread = ""  # the begun line

    def read(self, text: str) -> Iterator[dict[str, float]]:
        """What the lines of a further piece of text say."""
        lines = re.split(r"[\r\n]+", self._unread + text)
        self._unread = lines[-1][-1000:]
        for line in lines:
            found = _NUMBER.finditer(line)
            facts = {number["name"].lower(): float(number["number"]) for number in found}
            bar = _BAR.search(line)
            if bar and _TRAINS.fullmatch(bar["text"] or ""):
                self._show(bar["text"] or "", int(bar["step"]), int(bar["total"]))
                if line is lines[-1]:
                    self._unread = ""
            elif self._steps and _CLEARED.fullmatch(line):
                self._steps.clear()
            elif not facts:
                continue
            yield facts | self._reached()

    def _show(self, text: str, step: int, total: int) -> None:
        named = _EPOCH.search(text)
        epoch = int(named["epoch"]) if named else None
        if total not in self._bars:
            self._bars[total] = _Bars(total, step, epoch)
            self._begin(self._bars[total], text)
        bars = self._bars[total]
        bars.show(step, epoch)
        if self._around and self._steps and self._around.jump > self._steps.begun:
            # it counts steps, and an evaluation came before them
            self._steps = self._around
            self._around = self._epochs = None
        if named and epoch is not None and bars is self._steps and self._epochs is None:
            self._epochs = int(named["epochs"] or 0)
            # one that is 1, or names the last one, counts from 1
            bars.before = total * max(0, epoch - (epoch == 1 or self._epochs > 0))

    def _begin(self, bars: _Bars, text: str) -> None:
        """Decide whether bars with other steps count those of the training."""
        steps = self._steps
        if steps and not steps.jump and steps.step < steps.total and not self._around:
            self._around = steps
            self._epochs = steps.total
            bars.before = steps.step * bars.total
        elif steps and not (text and steps.step == steps.total):
            return
        self._steps = bars

    def _reached(self) -> dict[str, float]:
        steps = self._steps
        if steps is None:
            return {}
        total = max(steps.before + steps.total, (self._epochs or 0) * steps.total)
        facts: dict[str, float] = {"step": steps.before + steps.step, "total": total}
        if self._epochs is not None or steps.begun > 1:
            facts["epoch"] = facts["step"] / steps.total
        return facts
