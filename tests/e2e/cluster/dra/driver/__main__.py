"""Builds the program, and says where it is."""

from tests.e2e.cluster.dra.driver import program

print(program())
