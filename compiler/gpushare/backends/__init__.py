"""What a pool's shares become for users and nodes: a back end has the methods of `DevicePlugin`, the only one yet.

No other package knows a back end by its name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare import modes
from gpushare.backends import device_plugin
from gpushare.backends.device_plugin import DevicePlugin
from gpushare.intent.types import Pool


def of(pool: Pool) -> DevicePlugin:
    """Return the pool's back end."""
    return DevicePlugin(pool)


def quota_resource(key: str) -> str:
    """Return the resource that a ResourceQuota limits under this key."""
    return device_plugin.quota_resource(key)


def operator_mig_strategy(pools: Iterable[Pool], former: Iterable[Mapping[str, Any]] = ()) -> str | None:
    """Return the MIG strategy that suits the nodes of these pools, and those that still have a former config of a lock.

    The operator has one setting for all nodes; None if none suits them.
    """
    needed = [modes.of(pool).mig_strategy for pool in pools]
    return device_plugin.one_mig_strategy([*needed, *map(device_plugin.mig_strategy_of_config, former)])
