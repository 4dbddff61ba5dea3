"""What becomes of a node's GPUs, worked out from what stands there and what the policy asks for. Pure.

`plan` is the way in; `state` has the words for hardware, `operations` those for what is done to it.
"""

from gpushare_node.partition.fitness import UnfitReason
from gpushare_node.partition.plan import GpuPlan, PartitionPlan, Unfit, plan

__all__ = ["GpuPlan", "PartitionPlan", "Unfit", "UnfitReason", "plan"]
