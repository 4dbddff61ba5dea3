"""A made-up sysfs of a node with AMD's GPUs, and what runs on such a node: a config manager and a device plugin."""
