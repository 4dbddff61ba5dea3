"""Held: the devices that kubelet has given to pods, for looks that change nothing. Reads kubelet's checkpoint alone."""


from gpushare_node.adapters.host.kubelet import NO_CHECKPOINT, CheckpointError, read_checkpoint
from gpushare_node.core.structs import Struct
from gpushare_node.reconcile.usage import find_allocated, find_holders


class Held(Struct):
    """UUIDs of GPUs and MIG devices. `problem`: why they are not known; empty when they are."""

    devices: frozenset[str]
    problem: str = ""


def find_held() -> Held:
    """What the checkpoint says. Pods that have ended linger in it, and count as long as no API server is used."""
    try:
        checkpoint = read_checkpoint()
    except CheckpointError as error:
        return Held(devices=frozenset(), problem=str(error))
    if not checkpoint.is_there and checkpoint.has_kubelet:
        return Held(devices=frozenset(), problem=f"{NO_CHECKPOINT}, and no API server is used")
    return Held(devices=find_allocated(find_holders(checkpoint, None)))
