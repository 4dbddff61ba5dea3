"""`release`: makes this node, or with `--all-nodes` every node, exclusive again. Wires and prints."""

import sys
from contextlib import suppress

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.pod_identity import request_of
from gpushare_node.adapters.kube.uninstall import Uninstall, UninstallReport
from gpushare_node.cli.apply import finish, make_dependencies
from gpushare_node.cli.recap import Printer, to_stdout
from gpushare_node.cli.refusal import find_former
from gpushare_node.cli.run import Exit, Run
from gpushare_node.cli.wiring import NodeApi
from gpushare_node.reconcile.reconciler import release_orphan
from gpushare_node.reporting.log import escape
from gpushare_node.reporting.outcome import Status, StepResult


def release(run: Run) -> int:
    """Return 0 if everything is released, else 1."""
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
