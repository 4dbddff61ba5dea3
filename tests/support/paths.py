"""Where things are in a checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The top of the repository."""
