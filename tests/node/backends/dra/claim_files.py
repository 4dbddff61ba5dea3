"""Kubelet's and the driver's files of claims, recorded or made up, in a folder as `/var/lib/kubelet` is."""

import json
import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpushare_node.backends.backend import Allocation
from gpushare_node.backends.dra.claims import read_claims
from gpushare_node.contract.policy import Policy

RECORDED = Path(__file__).with_name("files")
SCENES = sorted(path.name for path in RECORDED.iterdir() if path.is_dir())
DRIVER = "gpu.nvidia.com"
GPU = "GPU-00000000-0000-4000-8000-00000000000{}"


def place(folder: Path) -> Path:
    """Where the driver's checkpoint is."""
    path = folder / "plugins" / DRIVER / "checkpoint.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def copy(scene: str, folder: Path) -> None:
    """Put the files of a recorded scene into the folder."""
    shutil.copy(RECORDED / scene / "dra_manager_state", folder / "dra_manager_state")
    shutil.copy(RECORDED / scene / "checkpoint.json", place(folder))


def recorded(scene: str, name: str) -> list[dict[str, Any]]:
    """The API server's objects of a recorded scene: pods, resourceclaims or resourceslices."""
    found: Any = json.loads((RECORDED / scene / f"{name}.json").read_text())
    objects: list[dict[str, Any]] = found["items"] if isinstance(found, dict) else found
    return objects


def state_text(claims: Any) -> str:
    """Kubelet's file with these claims."""
    data = json.dumps({"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": claims})
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())})


def result(device: str, **changes: Any) -> dict[str, Any]:
    """A device of a claim's allocation, as the API server has it."""
    return {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": device} | changes


def prepared(name: str, uuid: str) -> dict[str, Any]:
    """A device that the driver has prepared, as its checkpoint has it."""
    device = {"Requests": ["gpu"], "PoolName": "node-1", "DeviceName": name, "CDIDeviceIDs": [f"k8s.{DRIVER}/claim=x-{name}"]}
    if "-mig-" in name:
        return {"gpu": None, "mig": {"concrete": {"parentMinor": 0, "giId": 1, "ciId": 0, "migUUID": uuid}, "device": device}}
    return {"gpu": {"info": {"uuid": uuid}, "device": device}, "mig": None}


@dataclass(kw_only=True)
class Files:
    """Claims one by one; `write` makes the files."""

    folder: Path
    claims: list[dict[str, Any]] = field(default_factory=list)
    prepared: dict[str, Any] = field(default_factory=dict)

    def claim(
        self,
        name: str,
        *results: dict[str, Any],
        pods: tuple[str, ...] = ("pod-1",),
        uuids: dict[str, str] | None = None,
        devices: list[str] | None = None,
        namespace: str = "team",
        drivers: dict[str, Any] | None = None,
    ) -> str:
        """A claim with these results; its uid. `devices` are those that kubelet lists, if they are others."""
        uid = f"uid-{name}"
        own = [one for one in results if one["driver"] == DRIVER]
        found = [one["device"] for one in own] if devices is None else devices
        listed = [{"PoolName": "node-1", "DeviceName": one, "ShareID": None, "RequestNames": ["gpu"]} for one in found]
        self.claims.append(
            {
                "ClaimUID": uid,
                "ClaimName": name,
                "Namespace": namespace,
                "PodUIDs": {pod: {} for pod in pods},
                "DriverState": {DRIVER: {"Devices": listed}} if drivers is None else drivers,
            }
        )
        named = {one["device"]: GPU.format(one["device"][4:5]) for one in own} if uuids is None else uuids
        groups = [{"devices": [prepared(*pair) for pair in named.items()], "configState": {}}]
        self.prepared[uid] = {
            "checkpointState": "PrepareCompleted",
            "status": {"allocation": {"devices": {"results": list(results)}}},
            "preparedDevices": groups if named else None,
        }
        return uid

    def write(self) -> None:
        (self.folder / "dra_manager_state").write_text(state_text(self.claims))
        place(self.folder).write_text(json.dumps({"checksum": 1, "v1": None, "v2": {"preparedClaims": self.prepared}}))

    def read(self, policy: Policy | None = None) -> tuple[Allocation, ...]:
        """What is read of them."""
        self.write()
        found = read_claims(policy, self.folder)
        assert found is not None
        return found
