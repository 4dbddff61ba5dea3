"""Builds what is missing, and says where it is."""

from tests.e2e.registry.copiers import folder

print(folder())
