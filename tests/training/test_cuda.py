"""On a GPU: the gradients of a CPU, in half precision, compiled, and by NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from daskmetrics.config import Recipe
from daskmetrics.training.recipe import World
from tests.training.test_recipe import apart, changed, gradient

pytestmark = pytest.mark.cuda
GPU = World(device="cuda:0")


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 1e-1)])
def test_gradients_are_those_of_a_cpu(
    recipe: Recipe, tmp_path: Path, precision: str, tolerance: float
) -> None:
    on_gpu = gradient(changed(recipe, precision=precision), tmp_path / "gpu", GPU)
    assert apart(on_gpu.cpu(), gradient(recipe, tmp_path / "cpu")) < tolerance


def test_nccl_gives_one_rank_its_own_gradient(tmp_path: Path) -> None:
    torch.cuda.set_device(0)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        alone = torch.nn.Linear(8, 8, device="cuda:0")
        expected = torch.autograd.grad(
            alone(torch.ones(4, 8, device="cuda:0")).square().sum(), alone.weight
        )[0]
        wrapped = DistributedDataParallel(alone, gradient_as_bucket_view=True)
        wrapped(torch.ones(4, 8, device="cuda:0")).square().sum().backward()
        torch.testing.assert_close(alone.weight.grad, expected)
        assert World(0, 1, "cuda:0").gather("value") == ["value"]
    finally:
        dist.destroy_process_group()
