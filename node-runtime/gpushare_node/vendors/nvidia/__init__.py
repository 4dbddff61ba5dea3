"""NVIDIA: its driver, through NVML, and the names of its labels and resources."""
