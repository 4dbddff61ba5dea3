"""NVIDIA's own device plugin, feature discovery, config-manager and MPS control daemon, unchanged, over fake GPUs."""
