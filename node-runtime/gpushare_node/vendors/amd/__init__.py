"""AMD's GPUs, read from sysfs alone: while the config manager works, an open /dev/kfd would keep it from changing them."""
