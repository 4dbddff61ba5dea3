"""DebtRecords: what is stored of debts, so that a restart of the program pays none of them. Values only."""

from gpushare_node.adapters.host.state_files import DebtRecord
from gpushare_node.guard.debts import Debt, Violation
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, CapAction, ContainerId, Owner
from gpushare_node.guard.state import GuardState

Debts = tuple[DebtRecord, ...]


def keep(history: GuardState) -> Debts:
    """Return the debts of containers that have offended, and those of their namespaces."""
    containers = [
        DebtRecord(
            namespace=violation.owner.namespace,
            device=unit.device,
            milliseconds=round(violation.debt.seconds * 1000),
            place=violation.owner.uid,
            pod_uid=unit.container.pod_uid,
            container=unit.container.container,
            offences=violation.offences,
            limit_bytes=violation.cap.limit_bytes,
            action=violation.cap.action.value,
        )
        for unit, violation in history.violations.items()
        if violation.offences
    ]
    owing = {(container.namespace, container.device) for container in containers}
    namespaces = [
        DebtRecord(namespace=namespace, device=device, milliseconds=round(debt.seconds * 1000))
        for (namespace, device), debt in history.namespaces.items()
        if (namespace, device) in owing
    ]
    return (*containers, *namespaces)


def is_news(debts: Debts, former: Debts) -> bool:
    """Whether other containers owe, or one has offended again; how much they owe is stored with it."""
    return {(debt.place, debt.device, debt.offences) for debt in debts} != {
        (one.place, one.device, one.offences) for one in former
    }


def restore(debts: Debts, now: float) -> GuardState:
    """Return the state with which a program begins. No time is known to have passed since."""
    violations = {}
    for one in debts:
        if one.place:
            cap = Cap(bytes=one.limit_bytes, action=CapAction(one.action))
            violations[Unit(ContainerId(one.pod_uid, one.container), one.device)] = Violation(
                since=now,
                known_at=now,
                cap=cap,
                owner=Owner(one.namespace, one.place),
                debt=Debt(seconds=one.milliseconds / 1000),
                samples=1,
                offences=one.offences,
            )
    namespaces = {(debt.namespace, debt.device): Debt(seconds=debt.milliseconds / 1000) for debt in debts if not debt.place}
    return GuardState(violations=violations, namespaces=namespaces)
