"""Builds the program, and says where it is."""

from tests.e2e.publishing.helm_3_18 import program

print(program())
