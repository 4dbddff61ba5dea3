"""Builds the program, and says where it is."""

from tests.packaging.cosign import program

print(program())
