"""`assert`: whether the node's GPUs, and what it offers to Kubernetes, match the policy. Reads only."""

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, ClusterError, NodeView
from gpushare_node.backends.backend import CheckpointError
from gpushare_node.cli.run import Exit, Printer, Run, read_policy, to_stdout
from gpushare_node.cli.wiring import NodeApi, backend_of, bounded_driver, folder
from gpushare_node.contract.names import BACKEND_LABEL, PROFILE_LABEL
from gpushare_node.contract.policy import Policy
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.membership import claim, layout_request
from gpushare_node.reconcile.usage import read_allocated
from gpushare_node.reporting.outcome import Status, StepResult
from gpushare_node.vendors.driver import DriverError


def compare(run: Run) -> int:
    """Return 0 if the node matches, 1 if it does not, 2 if the driver, the checkpoint or the API server cannot be read."""
    arguments = run.arguments
    given = read_policy(arguments.policy)
    run.log.pool = given.policy.pool
    printer = to_stdout(as_json=arguments.format == "json", with_diff=arguments.diff)
    open_driver = bounded_driver(run, given.policy)
    hardware = Hardware(open_driver=open_driver, folder=folder(run), clock=run.clock, policy_digest=given.digest)
    try:
        # The result does not depend on them; the steps that would be taken do.
        held = read_allocated(backend_of(given.policy)).devices
        view = hardware.look(given.policy, held)
        # With `check` nothing is changed: every step that would be taken is reported.
        hardware.change(given.policy, view, held, printer.step, check=True)
        if not arguments.standalone:
            _compare_offer(given.policy, NodeApi.find(run, given.policy.pool), hardware.devices(view), printer)
    except (DriverError, ClusterError, CheckpointError) as error:
        printer.end(
            run.node, "assert", {"matches": None, "message": f"Cannot determine whether the node matches the policy: {error}"}
        )
        return Exit.WRONG
    finally:
        hardware.close()
    matches = view.is_as_desired and all(result.status is Status.OK for result in printer.results)
    message = "The node matches the policy." if matches else "The node does not match the policy."
    printer.end(run.node, "assert", {"matches": matches, "message": message})
    return Exit.DONE if matches else Exit.FAILED


def _compare_offer(policy: Policy, api: NodeApi, devices: frozenset[str], printer: Printer) -> None:
    node = api.server.node()
    for name, value, is_right in _labels(policy, node):
        found = node.labels.get(name)
        status = Status.OK if is_right else Status.FAILED
        detail = "" if is_right else f"{'is missing' if found is None else f'is {found!r}'}, should be {value}"
        printer.step(StepResult(step=f"label {name}", target="node", status=status, detail=detail))
    backend = backend_of(policy, api)
    lack = backend.find_mismatch(backend.expected(policy), devices, backend.read_checkpoint().registered, node.allocatable)
    status, detail = (Status.OK, "") if lack is None else (Status.FAILED, f"{lack.reason.word}: {lack.message}")
    printer.step(StepResult(step="offer", target="node", status=status, detail=detail))


def _labels(policy: Policy, node: NodeView) -> list[tuple[str, str, bool]]:
    """Return each label, its expected value, and whether it matches. The plugin's profile may have either of its two names."""
    exact = {
        **claim(policy),
        **({PROFILE_LABEL: policy.profile} if policy.profile else {}),
        **layout_request(policy),
    }
    if policy.backend.label is not None:
        exact[BACKEND_LABEL] = policy.backend.label
    either = node.labels.get(PLUGIN_LABEL) in (f"{policy.profile}-a", f"{policy.profile}-b")
    labels = [(name, value, node.labels.get(name) == value) for name, value in exact.items()]
    if not policy.profile:
        return labels
    return [*labels, (PLUGIN_LABEL, f"{policy.profile}-a or -b", either)]
