"""Builds the program, and says where it is."""

from tests.e2e.publishing.cosign import program

print(program())
