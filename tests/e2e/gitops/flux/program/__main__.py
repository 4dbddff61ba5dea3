"""Builds the programs, and says where they are."""

from tests.e2e.gitops.flux.program import program

print(program("source-controller").parent)
