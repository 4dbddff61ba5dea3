"""Why a ResourceClaim has no device: its class, the devices that match, and on each node what is short, and who has it. Pure.

Expressions are not evaluated: of a class of ours it is known what it selects, and of any other this is said.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpushare.cluster.live import claims, slices
from gpushare.cluster.live.claims import Claim, Counters, Device, DeviceClass, PodClaim, Request
from gpushare.cluster.live.live_pools import LivePools
from gpushare.cluster.live.objects import LiveNode, Pod, Snapshot
from gpushare.cluster.live.slices import Allocations, Held, Listed
from gpushare.core.units import MIB
from gpushare.core.wording import join_first, join_words, pluralize
from gpushare.facts.nodes import taints
from gpushare_node.contract.names import MEMORY
from gpushare_node.contract.objects import tolerates
from gpushare_node.contract.struct import Struct


class Cause(Struct):
    """One thing that is wrong, and what to do about it."""

    what: str
    remedy: str = ""


_MAX_NODES = 8
_MAX_DEVICES = 4
_RETRY = (
    "The scheduler tries again when a pod or a claim ends, or else after five minutes at the latest. Wait that long; then run "
    "this again."
)


class _View(Struct):
    """What the causes are looked up in. `given` is None if claims were not read: what is left of devices is then not known.

    By pool of slices: `in_use` are the devices that claims have, `rest` is what they leave of its counters.
    """

    live: LivePools
    nodes: Mapping[str, LiveNode]
    classes: Mapping[str, DeviceClass]
    listed: tuple[Listed, ...]
    in_use: Mapping[str, Sequence[Listed]]
    rest: Mapping[str, Counters]
    given: Allocations | None
    has_classes: bool
    has_slices: bool


def _view(snapshot: Snapshot, live: LivePools) -> _View | None:
    if snapshot.dra is None:
        return None
    given, listed = slices.seen_allocations(snapshot), slices.listed(snapshot.dra.slices)
    in_use: dict[str, list[Listed]] = {}
    for one in listed:
        if slices.key_of(one) in (given or {}):
            in_use.setdefault(one.pool, []).append(one)
    rest = {pool: Counter(whole) for pool, whole in slices.counters(snapshot.dra.slices).items()}
    for pool, those in in_use.items():
        for one in those:
            rest[pool].subtract(one.device.counters)
    return _View(
        live=live,
        nodes={node.name: node for node in snapshot.nodes},
        classes={one.name: one for one in snapshot.dra.classes},
        listed=listed,
        in_use=in_use,
        rest=rest,
        given=given,
        has_classes=snapshot.has_seen(claims.CLASSES),
        has_slices=snapshot.has_seen(claims.SLICES) and snapshot.has_seen("nodes"),
    )


def find(snapshot: Snapshot, namespace: str, name: str) -> Claim | None:
    """Return the claim of that name."""
    every = snapshot.dra.claims if snapshot.dra else ()
    return next((one for one in every if (one.namespace, one.name) == (namespace, name)), None)


def classes_of(snapshot: Snapshot, resource: str) -> list[str]:
    """Return the DeviceClasses that a name in limits stands for."""
    every = snapshot.dra.classes if snapshot.dra else ()
    return [one.name for one in every if one.stands_for(resource)]


def of_pod(snapshot: Snapshot, live: LivePools, pod: Pod) -> Iterator[Cause]:
    """Yield why the claims of a pod have no devices."""
    view = _view(snapshot, live)
    if view is None:
        return
    for one in pod.claims:
        claim = find(snapshot, pod.namespace, one.claim)
        if claim is not None and claim.owner and claim.owner[1] != pod.uid and claim.is_of_pool:
            yield _of_another(claim, claim.owner[0])
        elif claim is not None:
            yield from _of_claim(view, claim, pod)
        elif view.given is not None and one.is_ours:
            yield _missing(one, pod)


def _of_another(claim: Claim, owner: str) -> Cause:
    what = f"ResourceClaim {claim.full_name} was made for pod {owner}, and admission lets no other pod use it."
    return Cause(what=what, remedy="Name a template in place of the claim: each pod gets a claim of its own.")


def _missing(one: PodClaim, pod: Pod) -> Cause:
    if one.claim:
        return Cause(what=f"ResourceClaim {pod.namespace}/{one.claim} does not exist.", remedy="Make it, or use a template.")
    remedy = f"If namespace {pod.namespace} has no such template, `gpushare claims {pod.namespace}` prints those of its pools."
    what = f"No ResourceClaim has been made for the pod's claim {one.name} from template {one.template}."
    return Cause(what=what, remedy=f"{remedy} Else the Events of the pod say who refused the claim.")


def of_claim(snapshot: Snapshot, live: LivePools, claim: Claim) -> Iterator[Cause]:
    """Yield why a claim has no device."""
    view = _view(snapshot, live)
    if view is not None:
        pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        owner = pods.get((claim.namespace, claim.owner[0])) if claim.owner else None
        yield from _of_claim(view, claim, owner)


def of_limit(snapshot: Snapshot, live: LivePools, pod: Pod, resource: str, number: int) -> Iterator[Cause]:
    """Yield why a pod that asks by a name in limits has no device of the classes that have the name."""
    view = _view(snapshot, live)
    for name in classes_of(snapshot, resource) if view else ():
        request = Request(name=resource, device_class=name, count=number)
        yield from _of_request(view, pod.namespace, pod, (request,)) if view else ()


def _of_claim(view: _View, claim: Claim, pod: Pod | None) -> Iterator[Cause]:
    if claim.is_going:
        yield Cause(what=f"ResourceClaim {claim.full_name} is being deleted.", remedy="Delete the pod: it gets a new claim.")
    if claim.grants is None:
        for alternatives in claim.requests:
            yield from dict.fromkeys(_of_request(view, claim.namespace, pod, alternatives))


def _of_request(view: _View, namespace: str, pod: Pod | None, alternatives: Sequence[Request]) -> Iterator[Cause]:
    found = []
    for request in alternatives:
        causes, fits = _of_alternative(view, namespace, pod, request)
        if fits:
            yield Cause(what=f"Request {request.name} fits now: {join_first(fits)}.", remedy=_RETRY)
            return
        found += causes
    yield from found


def _of_alternative(view: _View, namespace: str, pod: Pod | None, request: Request) -> tuple[list[Cause], list[str]]:
    """Return why no device is given for a request, and the nodes on which one could be."""
    known = view.classes.get(request.device_class)
    if known is None:
        remedy = f"Use a template of a pool: `gpushare claims {namespace}` prints them."
        what = f"DeviceClass {request.device_class or '?'} of request {request.name} does not exist."
        return ([Cause(what=what, remedy=remedy)] if view.has_classes else []), []
    causes = [*_reserved(view, namespace, known)]
    if known.selection is None or request.has_selectors:
        whose = f"DeviceClass {known.name}" if known.selection is None else f"request {request.name}"
        what = f"The selectors of {whose} are not of gpushare's form and are not evaluated: which devices match is not known."
        return [*causes, Cause(what=what, remedy="Read the scheduler's message, and compare the class with the bundle.")], []
    if not view.has_slices:
        return causes, []
    matching = [one for one in view.listed if known.selection.accepts(one.device)]
    if not matching:
        return [*causes, _no_match(view, known)], []
    by_node: dict[str, list[Listed]] = {}
    for one in matching:
        by_node.setdefault(one.node, []).append(one)
    reasons = {name: _why_not(view, pod, request, name, each) for name, each in sorted(by_node.items())}
    fits = [f"node {name} has room" for name, reason in reasons.items() if not reason]
    if causes or not fits or view.given is None:
        causes += (
            [_none_fits(request, {name: reason for name, reason in reasons.items() if reason})] if any(reasons.values()) else []
        )
        return causes, []
    return [], fits


def _reserved(view: _View, namespace: str, known: DeviceClass) -> Iterator[Cause]:
    pool = view.live.pools.get(known.pool)
    if pool is not None and pool.namespaces and namespace not in pool.namespaces:
        what = f"DeviceClass {known.name} belongs to pool {pool.name}, which is for namespaces {join_words(pool.namespaces)}."
        yield Cause(
            what=what, remedy=f"Use a pool of namespace {namespace}, or add it to the pool's `namespaces` in the intent."
        )


def _no_match(view: _View, known: DeviceClass) -> Cause:
    there = Counter(_describe(one.device) for one in view.listed)
    listed = [f"{number} of {what}" for what, number in sorted(there.items())]
    what = f"No device matches DeviceClass {known.name} ({known.selection}); the slices have {join_first(listed) or 'none'}."
    return Cause(what=what, remedy="`gpushare status` shows whether the pool's nodes have their slices.")


def _describe(device: Device) -> str:
    kind = f"type {device.kind or '?'}" + (f", profile {device.profile}" if device.profile else "")
    return f"{kind}, productName {device.product or '?'}"


def _none_fits(request: Request, reasons: Mapping[str, str]) -> Cause:
    shown = [f" Node {name}: {reason}." for name, reason in reasons.items()]
    more = f" And {pluralize(len(shown) - _MAX_NODES, 'node')} more." if len(shown) > _MAX_NODES else ""
    what = f"No node can serve request {request.name} of class {request.device_class}.{''.join(shown[:_MAX_NODES])}{more}"
    return Cause(
        what=what, remedy="Wait until pods end; if none does, the pool needs more nodes, or the claim must ask for less."
    )


def _why_not(view: _View, pod: Pod | None, request: Request, name: str, matching: Sequence[Listed]) -> str:
    """Return why a node cannot serve a request; empty if it can, or if what is left of its devices is not known."""
    node = view.nodes.get(name)
    if node is None:
        return "the cluster has no such node"
    if closed := _closed(node, pod):
        return closed
    if not all(one.is_offered for one in matching):
        return "its ResourceSlices are incomplete"
    if view.given is None:
        return ""
    short = [_short(view, one, request, view.given.get(slices.key_of(one), ())) for one in matching]
    if sum(not one for one in short) >= request.count:
        return ""
    shown = [one for one in short if one]
    more = f"; and {len(shown) - _MAX_DEVICES} more" if len(shown) > _MAX_DEVICES else ""
    too_few = f"{request.count} devices are asked for, and {len(matching)} match" if request.count > len(matching) else ""
    return "; ".join(filter(None, [too_few, *shown[:_MAX_DEVICES]])) + more


def _closed(node: LiveNode, pod: Pod | None) -> str:
    if not node.is_up:
        return "kubelet does not report it as Ready"
    if node.is_cordoned:
        return "it is cordoned"
    if words := [*filter(None, map(taints.word, node.taints))]:
        return f"it is {join_words(words)}"
    unlike = [f"{key}={value}" for key, value in (pod.selector if pod else {}).items() if node.labels.get(key) != value]
    return f"the pod's nodeSelector wants {join_words(unlike)}" if unlike else ""


def _short(view: _View, one: Listed, request: Request, held: Sequence[Held]) -> str:
    """Return what of the device is too little for the request, and who has it; empty if it fits."""
    device = one.device
    kept = [one for one in device.taints if not any(tolerates(vars(other), vars(one)) for other in request.tolerations)]
    if kept:
        return f"{device.name} has taint {join_first(kept)}"
    if request.is_admin:
        return ""
    if not held and (beside := _beside(view, one)):
        return beside
    if slices.is_whole(device, held):
        return f"{device.name} is in use by {_users(held)}"
    rest, wanted = slices.left(device, held), slices.asked(device, request)
    for name in sorted(request.capacities.keys() - device.capacities.keys()):
        return f"{device.name} has no capacity {name}"
    for name, amount in wanted.items():
        if amount > rest[name]:
            have, whole = (_amount(name, number) for number in (max(0, rest[name]), device.capacities[name].value))
            text = f"{device.name} has {have} of {whole} {name} left, and {_amount(name, amount)} are asked"
            return f"{text}: {_users(held, name)}" if held else text
    return ""


def _beside(view: _View, one: Listed) -> str:
    """Return which devices in use leave no room for this one: on demand, places for instances of a GPU overlap."""
    rest = view.rest[one.pool]
    short = {name for name, number in one.device.counters.items() if number > rest.get(name, 0)}
    if not short:
        return ""
    others = [other for other in view.in_use.get(one.pool, ()) if short & other.device.counters.keys()]
    if not others:
        return f"{one.device.name} takes more of {join_first(sorted(short))} than its slices have"
    held = view.given or {}
    used = [f"{other.device.name}, in use by {_users(held[slices.key_of(other)])}" for other in others]
    return f"{one.device.name} has no room beside {join_first(used, _MAX_DEVICES)}"


def _users(held: Sequence[Held], capacity: str = "") -> str:
    return join_first([f"{_user(one)}{_consumes(one, capacity)}" for one in held], _MAX_DEVICES)


def _user(one: Held) -> str:
    pods = [f"pod {one.claim.namespace}/{name}" for name, _ in one.claim.pods]
    return join_first(pods) if pods else f"claim {one.claim.full_name}"


def _consumes(one: Held, capacity: str) -> str:
    return f" has {_amount(capacity, one.grant.consumed.get(capacity, 0))}" if capacity else ""


def _amount(capacity: str, amount: int) -> str:
    return f"{-(-amount // MIB)}Mi" if capacity == MEMORY else str(amount)
