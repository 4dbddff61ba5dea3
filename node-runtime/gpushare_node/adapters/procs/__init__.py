"""The second outside world: processes, cgroups, signals and the MPS control program."""
