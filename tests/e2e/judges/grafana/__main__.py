"""Builds the program, and says where it is."""

from tests.e2e.judges.grafana import program

print(program())
