"""Plans the MIG partitioning of a node's GPUs from their current state and the policy. Pure.

`plan` is the entry point; `state` has the types for the hardware, `operations` those for the changes to it.
"""

from gpushare_node.partition.plan import GpuPlan, PartitionPlan, Unfit, plan

__all__ = ["GpuPlan", "PartitionPlan", "Unfit", "plan"]
