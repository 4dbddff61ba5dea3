"""Places a workload on the nodes of a plan as the cluster does."""
