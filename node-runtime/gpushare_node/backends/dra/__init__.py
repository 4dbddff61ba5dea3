"""DRA: NVIDIA's driver offers the GPUs in ResourceSlices, and gives them to pods by ResourceClaims."""
