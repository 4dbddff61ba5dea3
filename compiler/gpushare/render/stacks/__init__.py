"""The stacks that add something to a bundle beside NVIDIA's device plugin: a module each, registered here."""

from gpushare.render.stacks.amd import AmdPrograms
from gpushare.render.stacks.dra import DraPrograms
from gpushare.render.stacks.stack import Stack

STACKS: tuple[Stack, ...] = (AmdPrograms(), DraPrograms())
"""In the order of the README. In `images.txt` the last is first."""
