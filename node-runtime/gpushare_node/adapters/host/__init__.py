"""Adapter to the host: the runtime's state directory, the boot id, and what kubelet records about devices."""
