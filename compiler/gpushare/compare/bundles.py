"""What a comparison reads from the files of a bundle: the chart's values and the pools' policies. Pure."""

from collections.abc import Mapping
from typing import Any

from gpushare.compare.files import Files, parsed
from gpushare.facts.catalog import upstream
from gpushare.facts.catalog.image_registry import reference
from gpushare.facts.catalog.upstream import OF_DRA
from gpushare_node.contract.struct import Struct

POLICIES = "chart/files/policies/"
VALUES = "chart/values.yaml"
IMAGES = "images.txt"
EXISTING = "existing"
"""The value `stack` where a vendor's programs are installed already."""
_NO_STACK = "none"
"""The same where no pool has NVIDIA's cards."""

OBSERVE = "observe"


def values(files: Files) -> Mapping[str, Any]:
    """Return the chart's values; empty if the bundle has none. Admission of a bundle that observes is as it acts: it warns."""
    found = parsed(VALUES, files[VALUES]) if VALUES in files else None
    if not isinstance(found, dict):
        return {}
    admission = found.get("admission") or {}
    if found.get("adoption") == OBSERVE and admission.get("enforce") == "deny":
        return found | {"admission": admission | {"enforce": "warn"}}
    return found


def nvidia_stack(values: Mapping[str, Any]) -> str | None:
    """Return the stack of NVIDIA's that the chart's values name, "" where they say nothing; None without NVIDIA's cards."""
    stack, pools = values.get("stack", ""), values.get("pools") or {}
    is_of_others = stack == EXISTING and bool(pools) and all("vendor" in pool for pool in pools.values())
    return None if stack == _NO_STACK or is_of_others else stack


def namespace(values: Mapping[str, Any], vendor: str) -> str | None:
    """Return where the programs of a vendor other than NVIDIA run, as the chart's values say; None if they do not."""
    return ((values.get("vendors") or {}).get(vendor) or {}).get("namespace")


def pools_of(values: Mapping[str, Any], vendor: str) -> set[str]:
    """Return the names of the pools with cards of a vendor other than NVIDIA."""
    return {name for name, pool in (values.get("pools") or {}).items() if pool.get("vendor") == vendor}


def terms(files: Files) -> dict[str, Any]:
    """Return, by pool, which nodes its DaemonSet selects; empty if the bundle does not contain it."""
    return {name: pool.get("terms") for name, pool in (values(files).get("pools") or {}).items()}


def policy(files: Files, pool: str) -> Mapping[str, Any]:
    """Return the spec of a pool's policy; empty if the bundle has none. A policy that observes has the action `none`."""
    path = f"{POLICIES}{pool}.yaml"
    document = parsed(path, files[path]) if path in files else None
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict):
        return {}
    if spec.get("adoption") == OBSERVE:
        return spec | {"enforcement": (spec.get("enforcement") or {}) | {"action": "none"}}
    return spec


class Images(Struct):
    """The images of `images.txt` by who runs them, `others` by vendor; ours is a value of the chart too."""

    nvidia: frozenset[str]
    dra: frozenset[str]
    others: Mapping[str, frozenset[str]]


def images(files: Files) -> Images:
    """Return the images of a bundle."""
    image = values(files).get("image")
    known = {key: one for key, one in image.items() if isinstance(one, str)} if isinstance(image, dict) else {}
    ours = reference(known) if {"repository", "tag"} <= known.keys() else ""
    text = files.get(IMAGES, "")
    nvidia, _, dra = upstream.listed_before(text).partition(OF_DRA)
    return Images(
        nvidia=_listed(nvidia) - {ours} if nvidia_stack(values(files)) is not None else frozenset(),
        dra=_listed(f"#{dra}"),
        others={vendor: _listed(f"#{upstream.listed(text, vendor)}") for vendor in upstream.HEADINGS},
    )


def _listed(text: str) -> frozenset[str]:
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
