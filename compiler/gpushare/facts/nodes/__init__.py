"""Which nodes a pool covers: labels and selectors."""
