"""The server of `tests.hub` as the hub's own client sees it, faults included."""

from __future__ import annotations

import huggingface_hub as client
import pytest
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.checkpoints.weights import files
from tests.hub import Fault, commit, name_of, serve, use

FILES = files(0)
WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serve({"org/suite": {"main": files(1), "step0": FILES}}) as hub:
        use(hub, tmp_path, monkeypatch)
        yield hub


def test_branches_files_and_heads_are_those_of_the_repository(hub):
    api = client.HfApi()
    branches = {each.name: each.target_commit for each in api.list_repo_refs("org/suite").branches}
    assert branches == {"main": commit(files(1)), "step0": commit(FILES)}
    listed = {each.path: each for each in api.list_repo_tree("org/suite", revision="step0")}
    assert {path: each.size for path, each in listed.items()} == {
        name: len(data) for name, data in FILES.items()
    }
    assert listed[WEIGHTS].lfs.sha256 == name_of(WEIGHTS, FILES[WEIGHTS])
    paths = api.get_paths_info("org/suite", [WEIGHTS], revision="step0")
    assert listed[WEIGHTS].blob_id in {each.blob_id for each in paths}
    head = client.get_hf_file_metadata(client.hf_hub_url("org/suite", WEIGHTS, revision="step0"))
    assert (head.commit_hash, head.etag, head.size) == (
        commit(FILES),
        name_of(WEIGHTS, FILES[WEIGHTS]),
        80_088 - 11,
    )


@pytest.mark.parametrize("redirects", [False, True])
def test_a_download_equals_the_repository(hub, tmp_path, redirects):
    hub.redirects = redirects
    folder = client.snapshot_download("org/suite", revision="step0", local_dir=tmp_path / "here")
    assert {name: (tmp_path / "here" / name).read_bytes() for name in FILES} == FILES and folder
    assert any(path.startswith("/lfs/") for path in hub.requests) == redirects


def test_refusals_are_the_clients_own_errors(hub):
    def download(source="org/suite", file=WEIGHTS, revision="step0"):
        return client.hf_hub_download(source, file, revision=revision)

    with pytest.raises(EntryNotFoundError):
        download(file="none.bin")
    with pytest.raises(RevisionNotFoundError):
        download(revision="step9")
    with pytest.raises(RepositoryNotFoundError):
        download("org/none")
    hub.faults.append(Fault("GET /org", status=503))
    with pytest.raises(HfHubHTTPError, match="503"):  # the client does not try again
        download()
    hub.token = "hf_secret"
    with pytest.raises(GatedRepoError):
        download()


def test_a_gated_repository_is_served_to_the_token_of_the_file(hub, tmp_path):
    hub.token, hub.redirects = "hf_secret", True
    (tmp_path / "token").write_text("hf_secret")
    client.hf_hub_download("org/suite", WEIGHTS, revision="step0", local_dir=tmp_path / "here")
    asked = {
        path.split("/")[1]: headers.get("Authorization")
        for method, path, headers in hub.seen
        if method == "GET"
    }
    assert asked["lfs"] is None
