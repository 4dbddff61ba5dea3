"""What a pool's shares become for users and nodes: a back end has the methods of `DevicePlugin`, the only one yet."""

from gpushare.backends.device_plugin import DevicePlugin
from gpushare.intent.types import Pool


def of(pool: Pool) -> DevicePlugin:
    """Return the pool's back end."""
    return DevicePlugin(pool)
