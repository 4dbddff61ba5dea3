"""What a device plugin answers to kubelet, in a form in which the plugins of two nodes can be compared: without UUIDs."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from tests.e2e.cluster.plugin import wire
from tests.e2e.cluster.plugin.offer import device_of


class Asked:
    """The plugin of one resource, asked over its socket in kubelet's folder."""

    def __init__(self, folder: Path, resource: str) -> None:
        checkpoint = json.loads((folder / "kubelet_internal_checkpoint").read_text())
        self._ids: list[str] = sorted(checkpoint["Data"]["RegisteredDevices"][resource])
        self._socket = folder / f"nvidia-{resource.partition('/')[2]}.sock"

    def answers(self) -> dict[str, Any]:
        """What is registered, preferred, given and refused."""
        first, last, two = self._ids[0], self._ids[-1], min(2, len(self._ids))
        of_first = [one for one in self._ids if device_of(one) == device_of(first)]
        return {
            "options": self._ask("GetDevicePluginOptions"),
            "shares of each device": sorted(Counter(map(device_of, self._ids)).values()),
            "replicas": sorted({one.partition("::")[2] for one in self._ids}),
            "one is preferred": self._prefers(self._ids, (), 1),
            "two are preferred": self._prefers(self._ids, (), two),
            "one and a required one": self._prefers(self._ids, (last,), two),
            "one of a device that has given one": self._prefers([one for one in self._ids if one != first], (), 1),
            "all of one device": self._prefers(of_first, (), len(of_first)),
            "one is given": self._gives(first),
            "two are given": self._gives(first, last),
            "an unknown one": self._gives("GPU-00000000-0000-0000-0000-000000000000"),
        }

    def _prefers(self, available: Sequence[str], required: Sequence[str], size: int) -> dict[str, Any]:
        data = self._ask("GetPreferredAllocation", wire.preference_request(available, required, size))
        if isinstance(data, str):
            return {"refused": data}
        [chosen], free = wire.read_ids(data), Counter(map(device_of, available))
        devices = [device_of(one) for one in chosen]
        return {
            "spread": sorted(Counter(devices).values()),
            "free before": sorted(free[one] for one in devices),
            "has what is required": set(required) <= set(chosen),
            "is available": set(chosen) <= {*available, *required},
        }

    def _gives(self, *ids: str) -> Any:
        data = self._ask("Allocate", wire.write_ids([ids]))
        if isinstance(data, str):
            return data
        given = [{**one.environment, **one.mounts} for one in wire.answers(data)]
        return [{name: self._without_uuids(value) for name, value in one.items()} for one in given]

    def _ask(self, call: str, request: bytes = b"") -> bytes | str:
        """Its answer, or its words against the request."""
        # Without an authority a server in Go refuses the connection.
        options = (("grpc.default_authority", "localhost"),)
        with grpc.insecure_channel(f"unix://{self._socket}", options=options) as channel:
            try:
                return bytes(channel.unary_unary(f"/v1beta1.DevicePlugin/{call}")(request, timeout=60))
            except grpc.RpcError as error:
                return self._without_uuids(f"{error.code().name}: {error.details()}")

    def _without_uuids(self, text: str) -> str:
        for one in {*self._ids, *map(device_of, self._ids)}:
            text = text.replace(device_of(one), "UUID")
        return text
