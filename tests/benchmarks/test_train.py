from __future__ import annotations

from benchmarks import train
from daskmetrics.config import Recipe


def test_a_process_group_of_one_equals_torchrun_to_the_last_bit(tmp_path, capsys):
    path = tmp_path / "corpus.txt"
    path.write_text(
        "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(100))
    )
    recipe = Recipe(
        width=16, depth=1, context=16, vocabulary=300, steps=8, checkpoints=(8,), corpus=str(path)
    )
    found = train.compare(recipe, pairs=1)
    train.report(recipe, found)
    assert [equal for _, _, equal in found] == [True]
    assert "equal bit for bit" in capsys.readouterr().out
