"""Builds the program, and says where it is."""

from tests.packaging.helm_3_18 import program

print(program())
