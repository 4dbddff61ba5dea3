"""What pods want of GPUs and when: from a CSV, from pods of a cluster, or generated from parameters."""
