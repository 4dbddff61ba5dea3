"""Builds the programs, and says where they are."""

from tests.e2e.cluster.programs import programs

for folder in programs():
    print(folder)
