"""Builds what is missing, and says where it is."""

from tests.e2e.pipelines.kustomize import program

print(program())
