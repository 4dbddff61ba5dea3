"""`apply`: makes the node match its pool's policy; `release` makes it exclusive again. Wires and prints."""

import sys
from collections.abc import Iterator
from contextlib import suppress

from gpushare_node.adapters.host.programs import boot_id
from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.pod_identity import request_of
from gpushare_node.adapters.kube.uninstall import Uninstall, UninstallReport
from gpushare_node.cli.refusal import describe_ignored, find_former, read_or_hold, read_or_report
from gpushare_node.cli.run import Exit, Printer, Run, to_stdout
from gpushare_node.cli.wiring import (
    EnforcerFactory,
    News,
    NodeApi,
    as_cluster,
    backend_of,
    bounded_driver,
    folder,
    is_driver_served,
    machine,
    tenancy_file,
    vendor_of,
)
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.gpus.hardware import GpuView, Hardware
from gpushare_node.membership import RELEASE_AFTER_SECONDS
from gpushare_node.reconcile.reconciler import reconcile, release_orphan
from gpushare_node.reconcile.run_context import DRIVER_SECONDS, Dependencies
from gpushare_node.reconcile.usage import AllocatedDevices, read_allocated
from gpushare_node.reporting.log import escape
from gpushare_node.reporting.outcome import Outcome, Status, StepResult, is_failed
from gpushare_node.vendors.driver import DriverError


def apply(run: Run) -> int:
    """Return 0 if the node is usable under the policy, else 1; 69 without a driver."""
    arguments = run.arguments
    may_hold = arguments.hold and not (arguments.standalone or arguments.check)
    if may_hold:
        run.install_signal_handlers()
    given = read_or_hold(run) if may_hold else read_or_report(run)
    printer = to_stdout(as_json=arguments.format == "json", with_diff=arguments.diff)
    if given.policy.ignored:
        printer.step(StepResult(step="policy", target="node", status=Status.SKIPPED, detail=describe_ignored(given)))
    if arguments.check:
        return _check(run, given, printer)
    if given.policy.observes:
        from gpushare_node.cli import observing  # noqa: PLC0415 - no other run needs it

        run.install_signal_handlers()
        return observing.report_only(run, given.policy, printer)
    api = None if arguments.standalone else NodeApi.find(run, given.policy.pool)
    run.install_signal_handlers()
    outcome = reconcile(make_dependencies(run, api, printer, given.policy), given, hold=arguments.hold)
    return finish(run, api, printer, outcome)


def make_dependencies(run: Run, api: NodeApi | None, printer: Printer, policy: Policy | None) -> Dependencies:
    """Return all external dependencies of the closed loop, for the node of this policy's pool."""
    if api is not None:
        api.start()
    tenants = tenancy_file(run)
    enforcers = EnforcerFactory(run=run, api=api, tenants=tenants)
    open_driver, host = bounded_driver(run, policy), machine(api, tenants, policy)
    return Dependencies(
        open_hardware=lambda digest: Hardware(
            open_driver=open_driver, folder=folder(run), clock=run.clock, policy_digest=digest, machine=host
        ),
        cluster=as_cluster(api),
        folder=folder(run),
        clock=run.clock,
        report=printer.step,
        backend=backend_of(policy, api),
        backend_of=lambda other: backend_of(other, api),
        boot_id=boot_id(),
        # Without an API server it is unknown which process belongs to which pod.
        open_enforcer=None if api is None else lambda former: enforcers.open(former, "former"),
        driver_seconds=getattr(run.arguments, "driver_timeout", DRIVER_SECONDS),
        has_news=(lambda: True) if api is None else News(api=api, clock=run.clock).has_changed,
        followed=enforcers.followed,
        platform=tenants.platform,
        release_after_seconds=getattr(run.arguments, "release_after", RELEASE_AFTER_SECONDS),
        vendor=vendor_of(policy),
        is_served=is_driver_served,
    )


def finish(run: Run, api: NodeApi | None, printer: Printer, outcome: Outcome) -> int:
    """Send the Events that are still queued, and print the recap; return the exit code."""
    if api is not None:
        api.events.drain()
    message = f"{outcome.reason.word}: {outcome.message or outcome.reason.value.means}"
    if not outcome.is_usable and outcome.reason is not ConditionReason.RELEASED:
        message += f" {outcome.reason.value.remedy}"
    facts = {"reason": outcome.reason.word, "usable": outcome.is_usable, "message": message}
    printer.end(run.node, run.arguments.command, facts)
    if outcome.is_usable and getattr(run.arguments, "hold", False):
        return Exit.DONE  # The pod continues and enforces caps on what is there; the condition reports what is missing.
    if outcome.reason.value.lacks_driver and not outcome.is_usable:
        return Exit.UNAVAILABLE
    is_done = outcome.reason.value.is_ready or outcome.reason is ConditionReason.RELEASED
    return Exit.DONE if is_done and not is_failed(outcome.results) else Exit.FAILED


def _check(run: Run, given: DesiredPolicy, printer: Printer) -> int:
    """Print what the run would do to the hardware, without doing it, and without an API server; return the exit code."""
    hardware = Hardware(
        open_driver=bounded_driver(run, given.policy),
        folder=folder(run),
        clock=run.clock,
        policy_digest=given.digest,
        machine=machine(None, tenancy_file(run), given.policy),
    )
    held = read_allocated(backend_of(given.policy))
    try:
        view = hardware.look(given.policy, held.devices)
        change = hardware.change(given.policy, view, held.devices, printer.step, check=True)
    except DriverError as error:
        printer.end(run.node, "apply", {"check": True, "message": f"the driver does not answer: {error}"})
        return Exit.UNAVAILABLE
    finally:
        hardware.close()
    facts = {"check": True, "reason": None if change.reason is None else change.reason.word}
    message = " ".join((change.message or "Nothing was changed: this was a check.", *_doubts(view, held)))
    printer.end(run.node, "apply", {**facts, "message": message})
    return Exit.FAILED if is_failed(change.results) else Exit.DONE


def _doubts(view: GpuView, held: AllocatedDevices) -> Iterator[str]:
    """Yield what a check cannot determine, but a run can."""
    if held.problem and not view.is_as_desired:
        yield f"It is unknown which pods hold GPUs, so nothing would be changed: {held.problem}"
    if held.devices and view.blocked:
        yield "All devices in kubelet's checkpoint count as in use, even of terminated pods: no API server was used."


def release(run: Run) -> int:
    """Make this node, or with `--all-nodes` every node, exclusive again. Return 0 if everything is released, else 1."""
    arguments = run.arguments
    printer = to_stdout(as_json=arguments.format == "json")
    run.install_signal_handlers()
    if arguments.all_nodes:
        return _release_all(run, printer)
    api = None if arguments.standalone else NodeApi.find(run, "")
    # In a pod it keeps running when everything is done: the pod is deleted when the node's label is removed.
    holds = api is not None and bool(api.identity.pod)
    former = None
    with suppress(StateDirError):  # The run reports it.
        former = find_former(run)
    deps = make_dependencies(run, api, printer, None if former is None else former.policy)
    return finish(run, api, printer, release_orphan(deps, hold=holds))


def _release_all(run: Run, printer: Printer) -> int:
    arguments = run.arguments
    api = NodeApi.find(run, "")

    if not (api.identity.pod and api.identity.pod_uid):
        why = "POD_NAME and POD_UID must be set: the request records the pod that made it"
        raise ClusterError("request nodes to leave their pools", None, why)

    def say(text: str) -> None:
        sys.stderr.write(f"{escape(text)}\n")

    uninstall = Uninstall(api.connection, api.identity.namespace, request_of(api.identity), run.clock, say)
    if arguments.observed:
        report = uninstall.forget()
    else:
        report = uninstall.run(timeout_seconds=arguments.timeout, goes_on=arguments.go_on)
    if report.is_done and arguments.claim_templates:
        uninstall.delete_templates()
    step = "remove the condition and the annotation" if arguments.observed else "release"
    detail = "the API server refuses it" if arguments.observed else "did not answer in time"
    for node in report.released:
        printer.step(StepResult(step=step, target=node, status=Status.CHANGED))
    for node in report.silent:
        printer.step(StepResult(step=step, target=node, status=Status.FAILED, detail=detail))
    message = "Nothing else was written on the nodes." if arguments.observed else _summary(report)
    next_steps = arguments.next_step if report.is_done else []
    printer.end(run.node, "release", {"message": message, "remaining": list(report.remaining), "nextSteps": next_steps})
    if next_steps and arguments.format == "text":
        sys.stdout.write("\n".join(["Left to do, in the folder of the bundle:", *map(escape, next_steps), ""]))
    return Exit.DONE if report.is_done else Exit.FAILED


def _summary(report: UninstallReport) -> str:
    if report.is_replaced:
        return "The release was installed again meanwhile; nothing was uninstalled."
    if not report.is_done:
        return "Nodes did not answer; nothing was uninstalled."
    message = "Nodes did not answer; the uninstall continued." if report.silent else "All nodes have left their pools."
    remaining = f"Pods that still run: {', '.join(report.remaining)}." if report.remaining else ""
    return message + remaining
