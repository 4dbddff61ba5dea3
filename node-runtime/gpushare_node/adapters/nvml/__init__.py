"""Adapter to the driver, through NVML. `driver` has the interface, `session` the implementation."""
