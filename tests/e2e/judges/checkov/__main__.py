"""Installs checkov, and says where it is."""

from tests.e2e.judges.checkov import program

print(program())
