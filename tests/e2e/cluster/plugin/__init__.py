"""A device plugin for tests: what NVIDIA's config-manager and device plugin do together, on fake silicon and real kubelets."""
