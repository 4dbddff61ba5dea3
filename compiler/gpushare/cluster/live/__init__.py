"""A running cluster, read only: what it has, compared with what is desired. `connection` alone sends requests."""
