"""Builds the program, and says where it is."""

from tests.compiler.monitoring.grafana import program

print(program())
