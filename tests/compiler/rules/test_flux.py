"""Rules on `gitops.flux`: code, place and sentence."""

import json
from itertools import product

import pytest

from gpushare.facts.catalog import upstream
from tests.compiler.rules.intents import HEAD, codes, found, one, pool


def settings(**changed: str) -> str:
    """The text of `gitops`, with other values than those that nothing is wrong with."""
    given = {"url": "https://git.example.org/gpu.git", "path": "clusters/physics-batch/bundle"} | changed
    return json.dumps({"flux": given})


@pytest.mark.parametrize(
    "address", ["https://git.example.org/gpu.git", "http://git.example.org/gpu", "ssh://git@git.example.org:2222/gpu.git"]
)
def test_addresses_of_repositories(address: str) -> None:
    assert codes(gitops=settings(url=address, secret="gpu-repository")) == []


@pytest.mark.parametrize(
    "address",
    [
        "",
        "gpu.git",
        "/srv/gpu.git",
        "https://",
        "git@git.example.org:gpu.git",
        "git://git.example.org/gpu.git",
        "file:///srv/gpu.git",
        "oci://registry.example.org/gpu",
        "https://a b/c",
        "https://a/$ORG.git",
        "https://a/b\n",
    ],
)
def test_address_flux_cannot_read_is_reported(address: str) -> None:
    path, _, message = one("GS735", gitops=settings(url=address))
    assert path == "/spec/gitops/flux/url"
    assert repr(address) in message


@pytest.mark.parametrize(
    "before",
    [
        "https://ada:secret@",
        "https://secret@",
        "http://:secret@",
        "ssh://git:secret@",
        "oci://ada:secret@",
        "https://ada:se/secret@",
        "HTTPS://secret@",
        "https://ada:a secret@",
    ],
)
def test_credentials_are_refused_and_not_repeated(before: str) -> None:
    gitops = settings(url=f"{before}git.example.org/gpu.git", secret="gpu-repository")
    path, _, message = one("GS736", gitops=gitops)
    assert path == "/spec/gitops/flux/url"
    assert "secret" not in message
    assert codes(gitops=gitops) == ["GS736"]


@pytest.mark.parametrize("path", [".", "bundle", "./clusters/a/bundle/", "clusters/..a/bundle"])
def test_paths_in_the_repository(path: str) -> None:
    assert codes(gitops=settings(path=path)) == []


@pytest.mark.parametrize("path", ["", "/clusters/a", "../other", "clusters/../../a", "clusters/a b", "clusters/$NAME", "a\\b"])
def test_paths_that_are_not_in_the_repository(path: str) -> None:
    assert one("GS737", gitops=settings(path=path))[0] == "/spec/gitops/flux/path"


@pytest.mark.parametrize(
    ("field", "right", "wrong"),
    [
        ("branch", "releases/v1.2", "main branch"),
        ("branch", "main", ""),
        ("branch", "a-b", "$BRANCH"),
        ("secret", "gpu.repository", "GPU repository"),
        ("secret", "a", ""),
        ("interval", "10s", "9s"),
        ("interval", "1h30m", "0s"),
        ("interval", "1.5h", "0"),
    ],
)
def test_settings_flux_cannot_use_are_reported(field: str, right: str, wrong: str) -> None:
    assert codes(gitops=settings(**{field: right})) == []
    assert one("GS738", gitops=settings(**{field: wrong}))[0] == f"/spec/gitops/flux/{field}"


def test_ssh_needs_a_secret() -> None:
    path, _, message = one("GS738", gitops=settings(url="ssh://git@git.example.org/gpu.git"))
    assert path == "/spec/gitops/flux/url"
    assert "Secret" in message


@pytest.mark.parametrize(
    ("spec", "longest"),
    [
        ("", "gpu-operator"),
        ("  platform: {stack: device-plugin}\n", "nvidia-device-plugin"),
        ("  platform: {stack: existing}\n", "gpushare"),
        ("  adoption: observe\n", "gpushare"),
    ],
)
def test_names_fit_into_labels(spec: str, longest: str) -> None:
    most = 63 - len(f"-gpus-{longest}")
    for (length, wanted), with_flux in product(((most, 0), (most + 1, 1)), (True, False)):
        head = HEAD.replace("physics-batch", "n" * length)
        text = f"{head}{spec}  gitops: {settings() if with_flux else '{}'}\n  pools:\n{pool()}"
        assert len(found(text, "GS739")) == (wanted if with_flux else 0)


def test_names_fit_into_labels_with_the_drivers_chart() -> None:
    most = 63 - len("-gpus-dra-driver-nvidia-gpu")
    spec = '  kubernetes: "1.36"\n  platform: {stack: device-plugin, dra: {}}\n'
    for length, wanted in ((most, 0), (most + 1, 1)):
        head = HEAD.replace("physics-batch", "n" * length)
        text = f"{head}{spec}  gitops: {settings()}\n  pools:\n{pool(backend='dra')}"
        assert len(found(text, "GS739")) == wanted


def test_length_check_uses_the_explicit_name() -> None:
    head = HEAD.replace("physics-batch", "n" * 60)
    for length, places in ((50, []), (51, ["/spec/gitops/flux/name"])):
        text = f"{head}  gitops: {settings(name='n' * length)}\n  pools:\n{pool()}"
        assert [place for place, _, _ in found(text, "GS739")] == places


def test_nvidia_chart_names_are_gpu_operator_and_device_plugin() -> None:
    names = {upstream.chart(stack).name for stack in ("gpu-operator", "device-plugin")}
    assert names == {"gpu-operator", "nvidia-device-plugin"}
