"""A running cluster, read only: what it has, compared with what was asked. `connection` alone sends requests."""
