from __future__ import annotations

import pytest
from distributed import Client

from daskmetrics.cluster import ProfileCluster


def test_it_runs_work_and_shows_the_dashboard_link_until_it_is_closed():
    with ProfileCluster("local", workers=1) as cluster:
        cluster.client.wait_for_workers(1, timeout=120)
        assert cluster.client.submit(sum, [1, 2]).result() == 3
        page = cluster._repr_html_()
        assert "1 of 1 have arrived" in page and f'href="{cluster.dashboard_link}"' in page
        with Client(cluster, set_as_default=False) as client:  # it needs the certificates
            assert client.submit(sum, [2, 3]).result() == 5
    assert repr(cluster) == "<ProfileCluster state: closed>" and "closed" in cluster._repr_html_()
    with pytest.raises(RuntimeError, match="closed"):
        cluster.scheduler_address  # noqa: B018
