"""The reasons of the node condition GPUShareReady: data that `make docs` writes from the node runtime's own list."""

import json
from collections.abc import Mapping
from functools import cache

from gpushare.core import resources
from gpushare_node.contract.struct import Struct


class Reason(Struct):
    """A reason, with those fields of the runtime's `ConditionSpec` that the compiler needs."""

    is_ready: bool
    means: str
    remedy: str
    is_hardware: bool
    is_gpu_fault: bool
    caps_unenforced: bool


@cache
def reasons() -> Mapping[str, Reason]:
    """Return all reasons by their words."""
    entries = json.loads(resources.reasons().read_text(encoding="utf-8"))
    return {word: Reason(**entry) for word, entry in entries.items()}
