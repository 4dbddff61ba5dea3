"""The first outside world: the driver, through NVML. `driver` has the words, `session` the real thing."""
