"""What a bundle remembers for the next compile: resolved goals and former device-plugin profiles, from `gpushare.lock.yaml`.

The lock is a declared input of the next compile, so the same intent and the same lock always give the same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpushare.intent import Layout

GENERATIONS = 20
"""How many former sets of profiles are kept: a node that was away for longer than that many changes must be relabelled by hand."""


@dataclass(frozen=True, kw_only=True)
class GoalPin:
    """What a pool's goal was resolved to. `question` is the digest of all that it depends on (card, goal, reserve)."""

    question: str
    layout: Layout


@dataclass(frozen=True, kw_only=True)
class Lock:
    """`files` maps bundle paths to digests; `profiles` is the current set (key → config), `former` older sets, newest first."""

    intent: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    goals: Mapping[str, GoalPin] = field(default_factory=dict)
    profiles: Mapping[str, Any] = field(default_factory=dict)
    former: tuple[Mapping[str, Any], ...] = ()
    mig_configs: Mapping[str, Any] = field(default_factory=dict)
    former_mig_configs: tuple[Mapping[str, Any], ...] = ()


EMPTY = Lock()
