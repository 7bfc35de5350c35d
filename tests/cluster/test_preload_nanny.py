"""Each worker sees one of its job's GPUs; with real jobs in tests/slurm."""

from __future__ import annotations

import pytest

from daskmetrics.cluster._preload_nanny import worker_gpu


def test_each_process_of_a_job_gets_a_different_gpu():
    seen = [worker_gpu(f"gpu-12-{i}", "MIG-a,MIG-b,7,8") for i in range(4)]
    assert seen == ["MIG-a", "MIG-b", "7", "8"]


@pytest.mark.parametrize(("name", "visible"), [("gpu-1-4", "0,1,2,3"), ("gpu-1-0", ""), ("alone", "0")])
def test_a_worker_without_a_gpu_does_not_start(name, visible):
    with pytest.raises(SystemExit, match=f"Worker {name} has no GPU: its job's CUDA_VISIBLE_DEVICES is '{visible}'"):
        worker_gpu(name, visible)
