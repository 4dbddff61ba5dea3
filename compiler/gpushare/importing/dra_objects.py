"""DeviceClasses and claims of NVIDIA's DRA driver: which cards and instances a class selects, and what claims ask of them.

A selector is read term by term: driver, type, profile and product. What else it says is reported, as it narrows the class.
Facts: resource.k8s.io/v1, and the attributes and classes of dra-driver-nvidia-gpu 0.5.0.
"""

import re
from collections.abc import Iterator

from gpushare.backends.dra import DRIVER, FOR_LIMITS
from gpushare.catalog.cards import Card
from gpushare.core.units import MIB, parse_quantity
from gpushare.core.wording import shorten
from gpushare.importing.documents import described
from gpushare.importing.parts import Notes, Part
from gpushare.intent.types import Interval
from gpushare_node.contract.struct import Struct

CLASS, TEMPLATE, CLAIM = "DeviceClass", "ResourceClaimTemplate", "ResourceClaim"
_GROUP = "resource.k8s.io/"
_DEVICE = rf"device\.attributes\[['\"]{re.escape(DRIVER)}['\"]\]\."
_TEXT = r"['\"]([^'\"\\]*)['\"]"
_OF_DRIVER = re.compile(rf"device\.driver\s*==\s*['\"]{re.escape(DRIVER)}['\"]\Z")
_EQUAL = re.compile(rf"{_DEVICE}(type|profile|productName)\s*==\s*{_TEXT}\Z")
_ONE_OF = re.compile(rf"{_DEVICE}productName\s+in\s+\[([^\]]*)\]\Z")
_QUOTED = re.compile(_TEXT)
_MOST = 4000


class ImportedClass(Struct):
    """A DeviceClass of GPUs. `products` empty: of any card; `profile` empty: of any instance. `name`: in `limits`."""

    name: str
    part: Part
    kind: str
    products: tuple[str, ...] = ()
    profile: str = ""
    works: bool = True

    @property
    def limits(self) -> Part:
        """The name by which pods may ask in `limits`, if the class has one."""
        return self.part.at("spec", "extendedResourceName")

    def selects(self, card: Card, profile: str) -> bool:
        """Whether it selects GPUs of the card, or with a profile such instances of it."""
        is_kind = self.kind == ("mig" if profile else "gpu") and self.profile in ("", profile)
        return is_kind and (not self.products or bool({card.name, *card.name_aliases} & {*self.products}))


class ImportedClaim(Struct):
    """What a request of a claim or a template, `root`, asks of a device. `memory` in bytes and `shares` None: it names none."""

    name: str
    origin: str
    root: Part
    part: Part
    request: str
    device_class: str
    memory: int | None
    shares: int | None

    @property
    def interval(self) -> tuple[str, Part] | None:
        """The interval that its own configs set, which take precedence over those of the class; None without any."""
        return interval(_spec(self.root).at("devices", "config"), self.request)


def is_of_dra(part: Part) -> bool:
    """Whether an object is a class, a template or a claim."""
    return part.at("kind").text in (CLASS, TEMPLATE, CLAIM) and part.at("apiVersion").text.startswith(_GROUP)


def read_class(part: Part, notes: Notes) -> ImportedClass | None:
    """Return the class; None if it is of another driver."""
    terms = [
        (term, one.at("cel", "expression"))
        for one in part.at("spec", "selectors").entries()
        for term in _terms(one.at("cel", "expression").text)
    ]
    if not any(DRIVER in term for term, _ in terms):
        return None
    name, kind, profile, products = part.at("metadata", "name").text, "gpu", "", None
    rest: list[tuple[str, Part]] = []
    for term, where in terms:
        if _OF_DRIVER.match(term):
            continue
        equal, one_of = _EQUAL.match(term), _ONE_OF.match(term)
        if equal and equal[1] == "type":
            kind = equal[2]
        elif equal and equal[1] == "profile":
            kind, profile = "mig", equal[2]
        elif equal or one_of:
            named = {equal[2]} if equal else set(_QUOTED.findall(one_of[1] if one_of else ""))
            products = named if products is None else products & named
        else:
            rest.append((term, where))
    if rest:
        term, where = rest[0]
        read = "which card it selects is not known: it is left out" if products is None else "it is taken as all of its product"
        notes.warn(
            "GS861",
            where,
            f"DeviceClass {shorten(name)} selects by more than driver, type, profile and product, {shorten(term)}: {read}",
            "a class of a pool selects all devices of its card: write a pool for each kind of node",
        )
    works = not rest or products is not None
    found = tuple(sorted(products or ()))
    return ImportedClass(name=name, part=part, kind=kind, products=found, profile=profile, works=works)


def _terms(expression: str) -> list[str]:
    """Return the parts of a conjunction; one part for any other expression."""
    if len(expression) > _MOST or "||" in expression:
        return [expression.strip()]
    return [term.strip().removeprefix("(").removesuffix(")").strip() for term in expression.split("&&") if term.strip()]


def read_claims(part: Part, notes: Notes) -> Iterator[ImportedClaim]:
    """Yield what each request of a claim or a template asks of a device: of alternatives the first, which the others equal.

    A claim that Kubernetes made for a pod's limits yields nothing: the pod has none.
    """
    if part.at("metadata", "annotations", FOR_LIMITS).text == "true":
        return
    for request in _spec(part).at("devices", "requests").entries():
        name = request.at("name").text
        listed = [_claim(part, asked, name) for asked in request.at("firstAvailable").entries()]
        first, *others = listed or [_claim(part, request.at("exactly"), name)]
        for other in others:
            if (other.device_class, other.memory, other.shares) != (first.device_class, first.memory, first.shares):
                notes.warn(
                    "GS861",
                    other.part,
                    f"{described(part)} has alternatives that differ: the first is imported",
                    "a claim of a pool asks for one share, wherever on the node it is",
                )
                break
        if first.device_class:
            _report_unclear(first, notes)
            yield first


def _spec(part: Part) -> Part:
    return part.at("spec", "spec") if part.at("kind").text == TEMPLATE else part.at("spec")


def interval(configs: Part, request: str = "") -> tuple[str, Part] | None:
    """Return the interval, empty for the default, that the last of the configs sets on a GPU, with that config; None without.

    Those of a class are for all its requests, and those of a claim for the ones that they name, or for all.
    """
    found = None
    for one in configs.entries():
        config = one.fresh()
        opaque, of_requests = config.at("opaque"), {name.text.partition("/")[0] for name in config.at("requests").entries()}
        if opaque.at("driver").text != DRIVER or opaque.at("parameters", "kind").text != "GpuConfig":
            continue
        word = opaque.at("parameters", "sharing", "timeSlicingConfig", "interval").text.lower()
        if not of_requests or request in of_requests:
            found = word if word in {*Interval} else "", one
    return found


def _claim(part: Part, asked: Part, request: str) -> ImportedClaim:
    capacity = asked.at("capacity", "requests")
    _ = asked.at("name").value
    if asked.at("count").fresh().count == 1:
        _ = asked.at("count").value
    if asked.at("allocationMode").fresh().text == "ExactCount":
        _ = asked.at("allocationMode").value
    for key, value in capacity.items():
        if key not in ("memory", "shares"):
            _ = value.value  # the other parts of an instance, which are shared as its memory is
    return ImportedClaim(
        name=part.at("metadata", "name").text,
        origin=described(part),
        root=part,
        part=asked,
        request=request,
        device_class=asked.at("deviceClassName").text,
        memory=parse_quantity(capacity.at("memory").value),
        shares=capacity.at("shares").devices,
    )


def _report_unclear(claim: ImportedClaim, notes: Notes) -> None:
    for name, found in (("memory", claim.memory), ("shares", claim.shares)):
        part = claim.part.at("capacity", "requests", name)
        if part.value is not None and found is None:
            notes.warn(
                "GS861",
                part,
                f"{claim.origin} asks for {name}: {shorten(part.value)}, which makes no share",
                f"leave {name} out",
            )


def mebibytes(claim: ImportedClaim) -> int | None:
    """Return how much memory a claim gets: the driver gives whole MiB, no less than what is asked for."""
    return None if claim.memory is None else -(-claim.memory // MIB)
