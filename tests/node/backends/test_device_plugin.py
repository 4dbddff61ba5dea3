"""Reading kubelet's checkpoint: the forms that it has had, and what is no checkpoint."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.backends.backend import Checkpoint, CheckpointError
from gpushare_node.backends.device_plugin import find_sockets, read_checkpoint


def entry(ids: Any, resource: str = "nvidia.com/gpu.shared") -> dict[str, Any]:
    return {"PodUID": "uid-1", "ContainerName": "main", "ResourceName": resource, "DeviceIDs": ids, "AllocResp": "CgA="}


def read(tmp_path: Path, entries: Any, registered: Any = None) -> Checkpoint:
    path = tmp_path / "kubelet_internal_checkpoint"
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    path.write_text(json.dumps({"Data": data, "Checksum": 4242424242}))
    return read_checkpoint(path)


@pytest.mark.parametrize(
    "ids", [{"0": ["GPU-a::1"], "1": ["GPU-b::0"], "-1": None}, ["GPU-b::0", "GPU-a::1"]], ids=["by NUMA node", "in a list"]
)
def test_an_allocation_names_its_pod_and_its_devices_in_both_forms(tmp_path: Path, ids) -> None:
    (found,) = read(tmp_path, [entry(ids)]).allocations
    assert (found.pod_uid, found.container, found.resource) == ("uid-1", "main", "nvidia.com/gpu.shared")
    assert found.ids == ("GPU-a::1", "GPU-b::0")
    assert found.devices == ("GPU-a", "GPU-b")


def test_all_allocations_but_only_nvidia_com_registrations_are_read(tmp_path: Path) -> None:
    """Other plugins give GPUs under names of their own."""
    found = read(tmp_path, [entry(["GPU-a-0"], "volcano.sh/vgpu")], {"intel.com/qat": ["x"], "nvidia.com/gpu": ["GPU-a"]})
    assert found.registered == {"nvidia.com/gpu": frozenset({"GPU-a"})}
    assert [(allocation.resource, allocation.ids) for allocation in found.allocations] == [("volcano.sh/vgpu", ("GPU-a-0",))]


def test_null_and_a_missing_checkpoint_file_are_read_as_empty(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "none") == Checkpoint(allocations=(), registered={}, is_there=False)
    assert not read_checkpoint(tmp_path / "none" / "none").has_kubelet
    assert read(tmp_path, None, None) == Checkpoint(allocations=(), registered={})
    assert read(tmp_path, None, {"nvidia.com/gpu": None}).registered == {"nvidia.com/gpu": frozenset()}


def test_checkpoint_is_reopened_after_kubelet_replaces_it(tmp_path: Path) -> None:
    read(tmp_path, [entry(["GPU-a"])])
    new = tmp_path / "new"
    new.write_text(json.dumps({"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}, "Checksum": 1}))
    new.rename(tmp_path / "kubelet_internal_checkpoint")
    assert read_checkpoint(tmp_path / "kubelet_internal_checkpoint").allocations == ()


@pytest.mark.failure_case(25)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '{"Data": null}',
        '{"Data": {}}',
        '{"Data": {"PodDeviceEntries": [3], "RegisteredDevices": {}}}',
        '{"Data": {"PodDeviceEntries": [{"ResourceName": "nvidia.com/gpu"}], "RegisteredDevices": {}}}',
        '{"Data": {"PodDeviceEntries": [], "RegisteredDevices": []}}x',
        "[" * 100_000,
        "\ud800".encode(errors="surrogatepass"),
        '{"Data": {"PodDeviceEntries": [], "RegisteredDevices": {"nvidia.com/gpu": "GPU-a"}}}',
        '{"Data": {"PodDeviceEntries": [], "RegisteredDevices": {"nvidia.com/gpu": [1]}}}',
    ],
    ids=lambda text: repr(text[:40]),
)
def test_invalid_checkpoint_raises_an_error_that_names_the_file(tmp_path: Path, text) -> None:
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CheckpointError, match="kubelet_internal_checkpoint"):
        read_checkpoint(path)


@pytest.mark.failure_case(114)
def test_plugin_restart_is_detected_by_its_socket(tmp_path: Path) -> None:
    def serve(name: str) -> None:
        if (tmp_path / name).exists():
            # Kept, so that its inode is not given again within the same tick of the clock.
            (tmp_path / name).rename(tmp_path / "former")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(tmp_path / name))

    assert find_sockets(tmp_path / "none") == find_sockets(tmp_path / ("x" * 300)) == frozenset()
    serve("kubelet.sock")
    serve("nvidia-gpu.sock")
    before = find_sockets(tmp_path)
    assert [name for name, *_ in before] == ["nvidia-gpu.sock"]
    serve("nvidia-gpu.sock")
    assert find_sockets(tmp_path).isdisjoint(before)
