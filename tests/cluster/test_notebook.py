from __future__ import annotations

import asyncio

import pytest
from distributed import Client

from daskmetrics.cluster import ProfileCluster


@pytest.fixture(scope="module")
def cluster():
    with ProfileCluster("local", workers=1) as cluster:
        cluster.client.wait_for_workers(1, timeout=120)
        yield cluster


def test_it_runs_work_and_shows_the_dashboard_link(cluster):
    assert cluster.client.submit(sum, [1, 2]).result() == 3
    page = cluster._repr_html_()
    assert "1 of 1 have arrived" in page and f'href="{cluster.dashboard_link}"' in page
    # it sets no colours of text or background: the notebook's theme decides
    assert "color: inherit" in page and "color: #" not in page.replace("border-left", "")


def test_another_client_needs_its_certificates(cluster):
    with Client(cluster, set_as_default=False) as client:
        assert client.submit(sum, [2, 3]).result() == 5


def test_in_an_event_loop_it_is_awaited():
    async def used() -> tuple[str, int, str]:
        cluster = ProfileCluster("local", workers=1, asynchronous=True)
        with pytest.raises(RuntimeError, match="await it"):
            cluster.client  # noqa: B018
        async with cluster:
            address = cluster.scheduler_address
            async with Client(address, security=cluster.security, asynchronous=True) as client:
                total = await client.submit(sum, [1, 2])
        return address, total, repr(cluster)

    address, total, after = asyncio.run(used())
    assert address.startswith("tls://") and total == 3 and after == "<ProfileCluster state: closed>"
