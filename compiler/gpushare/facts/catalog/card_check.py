"""Whether a card document is consistent in itself: findings GS903 and GS904. The document has passed `card.v1`.

Compares numbers with each other, by rules that are true for every card of the catalogue. It knows no other card, reads no
file and builds no Card, because paths must name what the user wrote.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpushare.core.diagnostics import Finding, Path


def inconsistencies(document: Mapping[str, Any], base: Path, *, mps_limit: int) -> list[Finding]:
    """Return the findings of a card. `base` is the document's path, `mps_limit` what the device plugin allows on this card."""
    findings = list(_mps(document, base, mps_limit))
    mig = document.get("mig")
    if mig is None:
        if document.get("migSupported"):
            findings.append(
                Finding(
                    code="GS903",
                    message="migSupported is true, but the card has no mig section",
                    hints=("describe its profiles under mig, or write migSupported: false",),
                    path=(*base, "migSupported"),
                )
            )
        return findings
    if document.get("migSupported") is False:
        findings.append(
            Finding(
                code="GS903",
                message="migSupported is false, but the card has a mig section",
                hints=("remove one of the two",),
                path=(*base, "migSupported"),
            )
        )
    findings += _repetitions(mig["profiles"], (*base, "mig", "profiles"))
    for index, profile in enumerate(mig["profiles"]):
        findings += _profile(profile, mig["units"], document, (*base, "mig", "profiles", index))
    return findings


def gigabytes_in_name(profile_mib: int, total_mib: int) -> int:
    """Return the number before `gb` in a profile's name, as NVIDIA's go-nvlib computes it (getMigMemorySizeGB).

    The profile's share of the total, rounded up to eighths, of the total in whole GiB (rounded up), rounded half up.
    """
    eighths = -(-8 * profile_mib // total_mib)
    total_gib = -(-total_mib // 1024)
    return (2 * eighths * total_gib + 8) // 16


def _mps(document: Mapping[str, Any], base: Path, limit: int) -> Iterator[Finding]:
    replicas = document.get("mps", {}).get("maxReplicas", limit)
    if replicas > limit:
        yield Finding(
            code="GS904",
            message=f"mps.maxReplicas is {replicas}; the device plugin allows {limit} at compute capability "
            f"{document['computeCapability']}",
            hints=(f"write at most {limit}, or leave maxReplicas out",),
            path=(*base, "mps", "maxReplicas"),
        )


def _repetitions(profiles: list[Mapping[str, Any]], base: Path) -> Iterator[Finding]:
    copies = set[int]()
    for key in ("name", "profileId", "nvmlEnum"):
        seen: dict[object, str] = {}
        for index, profile in enumerate(profiles):
            value = profile[key]
            if value is not None and value in seen and index not in copies:
                copies.add(index)  # one finding for an entry that is repeated
                yield Finding(
                    code="GS903",
                    message=f"{key} {value} is already that of profile {seen[value]}",
                    hints=(f"every profile of a card has its own {key}",),
                    path=(*base, index, key),
                )
            seen.setdefault(value, profile["name"])


def _profile(profile: Mapping[str, Any], units: int, document: Mapping[str, Any], base: Path) -> Iterator[Finding]:
    name = profile["name"]
    spans = [tuple(int(number) for number in text.split(":")) for text in profile["placements"]]
    for index, (start, size) in enumerate(spans):
        if start + size > units:
            yield Finding(
                code="GS903",
                message=f"placement {start}:{size} of {name} ends at {start + size}, behind the grid of {units} units",
                hints=(f"start and size may add up to {units} at most",),
                path=(*base, "placements", index),
            )
    room = _disjoint(spans)
    if profile["maxCount"] > room:
        yield Finding(
            code="GS903",
            message=f"maxCount of {name} is {profile['maxCount']}, but its placements hold {room} at a time",
            hints=(f"write at most {room}, or add the missing placements",),
            path=(*base, "maxCount"),
        )
    yield from _name(profile, document, base)


def _name(profile: Mapping[str, Any], document: Mapping[str, Any], base: Path) -> Iterator[Finding]:
    """Check the name's two numbers: compute slices, and memory if both the card's and the profile's are known."""
    name = profile["name"]
    slices, _, rest = name.partition("g.")
    if int(slices) != profile["computeSlices"]:
        yield Finding(
            code="GS903",
            message=f"{name} is named after {slices} compute slices and has computeSlices {profile['computeSlices']}",
            hints=("the number before the first g is computeSlices",),
            path=(*base, "computeSlices"),
        )
    total, own = document["memoryMiB"], profile["memoryMiB"]
    if total is None or own is None:
        return
    expected = gigabytes_in_name(own, total)
    if int(rest.partition("gb")[0]) != expected:
        corrected = f"{slices}g.{expected}gb" + rest.partition("gb")[2]
        yield Finding(
            code="GS903",
            message=f"a profile with {own} MiB of {total} MiB is named {corrected}, not {name}",
            hints=(f"write name: {corrected}, or correct memoryMiB: the device plugin derives the name from the memory",),
            path=(*base, "name"),
        )


def _disjoint(spans: list[tuple[int, ...]]) -> int:
    """Return how many of the placements fit at once: taking the one that ends first is optimal."""
    count = end = 0
    for start, size in sorted(spans, key=sum):
        if start >= end:
            count, end = count + 1, start + size
    return count
