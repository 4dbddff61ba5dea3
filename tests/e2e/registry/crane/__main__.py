"""Builds what is missing, and says where it is."""

from tests.e2e.registry.crane import folder

print(folder())
