"""Imported by the fork server: its calls import no module, compile no pattern or template, and read no chart or card again."""

import importlib
import pkgutil

import gpushare
from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.facts.catalog import cards
from gpushare.report import html, show
from tests.support.paths import ROOT

for module in pkgutil.walk_packages(gpushare.__path__, "gpushare."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for card in cards.ids():
    cards.load(card)
compilation = pipeline.compile_intent((ROOT / "examples/01-heterogeneous/intent.yaml").read_bytes(), "intent.yaml", lock.EMPTY)
assert compilation.plan is not None
html.page(show.report(compilation.plan, []), "")
