"""Measured use of GPUs: what Prometheus has of it."""
