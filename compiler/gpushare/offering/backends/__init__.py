"""What a pool's shares become for users and nodes: a back end has the methods of `DevicePlugin`, for each vendor its own.

What differs is asked of the back end, or of the mode; `tests/contract/test_backends.py` lists who knows one by its name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import Pool
from gpushare.offering import modes
from gpushare.offering.backends import device_plugin
from gpushare.offering.backends.amd_device_plugin import AmdDevicePlugin
from gpushare.offering.backends.device_plugin import DevicePlugin
from gpushare.offering.backends.dra import DraDriver
from gpushare.offering.backends.requests import ExtendedResources, quota_resource
from gpushare_node.contract.policy import Backend

__all__ = ["DEFAULT", "named", "of", "operator_mig_strategy", "quota_resource"]


DEFAULT = Backend.DEVICE_PLUGIN.value
"""The back end of what names none."""

_PLUGINS: Mapping[str, type[DevicePlugin | AmdDevicePlugin]] = {"nvidia": DevicePlugin, "amd": AmdDevicePlugin}


def of(pool: Pool, card: Card) -> DevicePlugin | AmdDevicePlugin | DraDriver:
    """Return the back end of a pool that has this card."""
    return DraDriver(pool, card) if pool.backend.has_claims else _PLUGINS[card.vendor](pool)


def named(word: str) -> type[ExtendedResources | DraDriver]:
    """Return the traits of the back end that a document names, whatever the vendor of its pool is."""
    return DraDriver if Backend(word).has_claims else ExtendedResources


def operator_mig_strategy(pools: Iterable[Pool], former: Iterable[Mapping[str, Any]] = ()) -> str | None:
    """Return the MIG strategy that suits the nodes of these pools, and those that still have a former config of a lock.

    NVIDIA's operator has one setting for all nodes; None if none suits them.
    """
    needed = [modes.of(pool).mig_strategy for pool in pools if not pool.backend.has_claims]
    return device_plugin.one_mig_strategy([*needed, *map(device_plugin.mig_strategy_of_config, former)])
