"""`chart/files/mig-parted/config.yaml`: the MIG configs for mig-manager, if it partitions the GPUs.

One config that mig-parted cannot parse makes the whole file unusable, and a node whose label names a missing config fails. So
former configs are kept, and the file always has `all-disabled`, which the operator sets on every node without a label.
"""

from gpushare.bundle.lock import Lock
from gpushare.core import emit
from gpushare.offering.partitioners.mig_parted import ALL_DISABLED
from gpushare.resolved.plan import Plan
from gpushare_node.contract.policy import Partitioner


def config(plan: Plan, new_lock: Lock) -> str | None:
    """Return the file's text; None if the node runtime partitions."""
    if plan.intent.platform.partitioner is not Partitioner.MIG_MANAGER:
        return None
    configs = {ALL_DISABLED.name: list(ALL_DISABLED.entries)} | new_lock.mig_configs.every()
    return emit.yaml_text({"version": "v1", "mig-configs": dict(sorted(configs.items()))})
