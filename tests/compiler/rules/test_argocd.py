"""Rules on `gitops.argocd`: code, place and sentence."""

import json

import pytest

from tests.compiler.rules.intents import codes, one

FLUX = "flux: {url: 'https://git.example.org/gpu.git', path: a}"


def settings(**changed: str) -> str:
    """The text of `gitops`, with other values than those that nothing is wrong with."""
    given = {"repoURL": "https://git.example.org/gpu.git", "path": "clusters/physics-batch/bundle"} | changed
    return json.dumps({"argocd": given})


@pytest.mark.parametrize(
    "address",
    [
        "https://git.example.org/gpu.git",
        "ssh://git@git.example.org:2222/gpu.git",
        "git@git.example.org:gpu.git",
        "file:///srv/gpu.git",
        "http://git.example.org/gpu",
        "git://git.example.org/gpu.git",
        "https://git.example.org:8443/a@b.git",
        "https://git.example.org/a@b.git",
    ],
)
def test_addresses_of_repositories(address: str) -> None:
    assert codes(gitops=settings(repoURL=address)) == []


@pytest.mark.parametrize(
    "address",
    [
        "",
        "gpu.git",
        "/srv/gpu.git",
        "https://",
        "oci://registry.example.org/gpu",
        "https://git.example.org/gpu .git",
        "https://git.example.org/$ORG.git",
        "https://a/b\n",
    ],
)
def test_invalid_repository_address_is_reported(address: str) -> None:
    path, _, message = one("GS730", gitops=settings(repoURL=address))
    assert path == "/spec/gitops/argocd/repoURL"
    assert repr(address) in message


@pytest.mark.parametrize(
    "before",
    [
        "https://ada:secret@",
        "https://secret@",
        "http://:secret@",
        "ssh://git:secret@",
        "https://ada:se/secret@",
        "HTTPS://secret@",
        "https://ada:a secret@",
        " https://ada:secret@",
        "Ftp://ada:secret@",
        "https://ada:443secret/@",
    ],
)
def test_credentials_are_refused_and_not_repeated(before: str) -> None:
    path, _, message = one("GS731", gitops=settings(repoURL=f"{before}git.example.org/gpu.git"))
    assert path == "/spec/gitops/argocd/repoURL"
    assert "secret" not in message


@pytest.mark.parametrize("path", [".", "bundle", "./clusters/a/bundle/", "clusters/..a/bundle"])
def test_paths_in_the_repository(path: str) -> None:
    assert codes(gitops=settings(path=path)) == []


@pytest.mark.parametrize("path", ["", "/clusters/a", "../other", "clusters/../../a", "clusters/a b", "clusters/$NAME", "a\\b"])
def test_paths_that_are_not_in_the_repository(path: str) -> None:
    assert one("GS732", gitops=settings(path=path))[0] == "/spec/gitops/argocd/path"


@pytest.mark.parametrize(
    ("field", "right", "wrong"),
    [
        ("project", "gpus", "GPUs of physics"),
        ("targetRevision", "releases/v1.2", "main branch"),
        ("project", "a.b", "$P"),
        ("targetRevision", "0a1b2c3d", ""),
        ("server", "https://198.51.100.7:6443", "physics-batch"),
        ("server", "https://kubernetes.default.svc", "https://ada@api.example.org"),
    ],
)
def test_settings_argo_cd_refuses_are_reported(field: str, right: str, wrong: str) -> None:
    assert codes(gitops=settings(**{field: right})) == []
    assert one("GS733", gitops=settings(**{field: wrong}))[0] == f"/spec/gitops/argocd/{field}"


def test_both_gitops_tools_together_are_refused() -> None:
    both = "{argocd: {repoURL: 'https://git.example.org/gpu.git', path: a}, " + FLUX + "}"
    assert one("GS734", gitops=both)[0] == "/spec/gitops"
    assert "GS734" not in codes(gitops="{" + FLUX + "}")
