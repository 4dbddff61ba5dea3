"""Intents with one pool, and what is advised for them."""

from typing import Any

import yaml

from gpushare import pipeline
from gpushare.bundle.lock import EMPTY
from gpushare.core.prices import Price
from gpushare.pipeline import Compilation
from gpushare.study.advice import advising
from gpushare.study.advice.advised import PoolAdvice
from gpushare.study.advice.advising import Caution
from gpushare.study.advice.history import History

MIB, GIB = 1 << 20, 1 << 30


def document(card: str = "t4", sharing: Any = None, gpus: int = 1, **fields: Any) -> dict[str, Any]:
    """An intent with the pool `notebooks`: T4s in three shares each."""
    pool = {
        "card": card,
        "nodes": {"matchLabels": {"node.example.org/gpu": card}, "expected": 12},
        "gpusPerNode": gpus,
        "sharing": sharing or {"mode": "time-slicing", "replicas": 3},
        **fields,
    }
    return {
        "apiVersion": "gpushare.dev/v1",
        "kind": "ClusterIntent",
        "metadata": {"name": "lab"},
        "spec": {
            "platform": {"image": {"repository": "registry.example.org/gpushare/node-runtime"}},
            "pools": {"notebooks": pool},
        },
    }


def compiled(of: dict[str, Any]) -> Compilation:
    return pipeline.compile_intent(yaml.safe_dump(of, sort_keys=False).encode(), "intent.yaml", EMPTY)


def advised(history: History, of: dict[str, Any] | None = None, price: Price | None = None, **settings: Any) -> PoolAdvice:
    made = compiled(of or document())
    assert made.plan is not None, made.findings
    prices = {} if price is None else {"notebooks": price}
    (found,) = advising.advise(made.plan, made.source.data, pipeline.findings_of, history, prices, Caution(**settings)).pools
    return found
