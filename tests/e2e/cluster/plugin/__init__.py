"""A device plugin for tests: what NVIDIA's config-manager and device plugin do together, on fake GPUs and real kubelets."""
