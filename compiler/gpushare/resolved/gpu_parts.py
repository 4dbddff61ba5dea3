"""Which part of a GPU a share of a pool is: what usage and prices of shares are computed with. Pure."""

from collections.abc import Mapping

from gpushare import modes
from gpushare.core.units import total
from gpushare.resolved.node_plan import DevicePlan
from gpushare.resolved.plan import PoolPlan


def of_resources(pool: PoolPlan) -> Mapping[str, float | None]:
    """Return the GPUs of one share by resource, in proportion to memory, so that all shares of a GPU are one; None: not known.

    A share whose resource several GPUs divide differently is the mean of its parts of them. An instance on demand is the memory
    slices that it takes.
    """
    of_gpu: dict[int, list[DevicePlan]] = {}
    for device in pool.devices:
        of_gpu.setdefault(device.gpu, []).append(device)
    parts: dict[str, list[float | None]] = {}
    for devices in of_gpu.values():
        alike = len({device.profile for device in devices}) == 1  # these need no memory to be compared
        memory = [1 if alike else device.memory_mib for device in devices]
        whole = total(memory)
        if pool.card.mig and modes.of(pool.pool).is_on_demand:
            memory, whole = [device.size for device in devices], pool.card.mig.units
        for device, own in zip(devices, memory, strict=True):
            parts.setdefault(device.resource, []).append(own / whole if own and whole else None)
    sums = {one.name: (total(parts[one.name]), one.per_node) for one in pool.resources}
    return {name: None if gpus is None else gpus / shares for name, (gpus, shares) in sums.items()}
