"""Text to values with positions, and values to schema findings. Knows documents, not GPUs."""
