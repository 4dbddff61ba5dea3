"""Builds the program, and says where it is."""

from tests.e2e.cluster.kube_state_metrics import program

print(program())
