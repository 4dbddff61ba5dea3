"""Adapter to the host's processes: /proc, cgroups, signals and the MPS control program."""
