"""The devices that kubelet has allocated to pods, for commands that change nothing. Reads only kubelet's checkpoint."""

from gpushare_node.backends.backend import NO_CHECKPOINT, Backend, CheckpointError
from gpushare_node.contract.struct import Struct
from gpushare_node.reconcile.usage import find_allocated, find_holders


class AllocatedDevices(Struct):
    """UUIDs of GPUs and MIG devices. `problem`: why they are not known; empty if they are."""

    devices: frozenset[str]
    problem: str = ""


def read_allocated(backend: Backend) -> AllocatedDevices:
    """Return the devices in the checkpoint. Pods that have ended stay in it, and count, because no API server is used."""
    try:
        checkpoint = backend.read_checkpoint()
    except CheckpointError as error:
        return AllocatedDevices(devices=frozenset(), problem=str(error))
    if not checkpoint.is_there and checkpoint.has_kubelet:
        return AllocatedDevices(devices=frozenset(), problem=f"{NO_CHECKPOINT}, and no API server is used")
    return AllocatedDevices(devices=find_allocated(find_holders(checkpoint, None)))
