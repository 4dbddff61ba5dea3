"""Installs checkov, and says where it is."""

from tests.chart.checkov import program

print(program())
