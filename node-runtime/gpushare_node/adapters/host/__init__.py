"""Adapter to the host: the runtime's state directory, the boot id, and the machine's own programs."""
