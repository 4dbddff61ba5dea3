"""The host itself: the runtime's folder on it, its boot id, and what kubelet writes down about devices."""
