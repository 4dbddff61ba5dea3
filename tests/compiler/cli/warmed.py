"""Imported by the fork server: the program has compiled once, so its calls compile no pattern and read no chart again."""

from gpushare import pipeline
from tests.support.paths import ROOT

pipeline.check((ROOT / "examples/01-heterogeneous/intent.yaml").read_bytes(), "intent.yaml")
