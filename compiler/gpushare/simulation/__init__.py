"""Places a workload on the nodes of a plan as the cluster does, and searches for layouts that serve it at less cost."""
