"""Builds the program, and says where it is."""

from tests.e2e.gitops.argocd.program import program

print(program())
