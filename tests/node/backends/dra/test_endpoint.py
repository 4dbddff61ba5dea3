"""Whether a DRA driver serves kubelet: by its sockets, which outlive programs that are killed."""

import socket
from pathlib import Path

import pytest

from gpushare_node.backends.dra.claims import is_served

DRIVER = "gpu.nvidia.com"


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kubelet's folder, with the driver's own. The path of a socket must be short."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugins_registry").mkdir()
    (tmp_path / "dra_manager_state").touch()
    (tmp_path / "plugins" / DRIVER).mkdir(parents=True)
    return Path()


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(0)
    return server


@pytest.mark.parametrize(
    "path",
    [f"plugins/{DRIVER}/dra-1234.sock", f"plugins_registry/{DRIVER}-reg.sock", f"plugins_registry/{DRIVER}-1234-reg.sock"],
)
def test_a_driver_that_listens_serves(kubelet: Path, path: str) -> None:
    listen(kubelet / f"plugins/{DRIVER}/dra.sock").close()
    other = listen(kubelet / "plugins_registry/gpu.amd.com-reg.sock")
    assert not is_served(DRIVER, kubelet), "the socket of a program that was killed, and that of another driver"
    server = listen(kubelet / path)
    assert is_served(DRIVER, kubelet)
    server.close()
    assert not is_served(DRIVER, kubelet)
    other.close()


@pytest.mark.parametrize("missing", ["plugins_registry", "dra_manager_state"])
def test_where_kubelet_has_no_registry_or_list_a_driver_may_serve(kubelet: Path, missing: str) -> None:
    """Kubelet's folder may be another one than we were told."""
    (kubelet / missing).rename(kubelet / "other")
    assert is_served(DRIVER, kubelet)


def test_what_cannot_be_asked_may_serve(kubelet: Path) -> None:
    (kubelet / f"plugins/{DRIVER}/dra.sock").symlink_to("dra.sock")
    assert is_served(DRIVER, kubelet)


def test_a_driver_that_is_too_busy_to_accept_serves(kubelet: Path) -> None:
    path = kubelet / f"plugins/{DRIVER}/dra.sock"
    server = listen(path)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(str(path))
    assert is_served(DRIVER, kubelet)
    for one in (server, *waiting):
        one.close()
