"""From measured or wished use to a plan: workloads, their simulation, sizes, and advice."""
