"""The wish of a person that a node tries again now: an annotation, heeded by the next attempt and taken away."""


from gpushare_node.adapters.kube.cluster import RETRY_ANNOTATION, NodeView
from gpushare_node.core.structs import replace
from gpushare_node.reconcile.eviction import DrainEvictions
from gpushare_node.reconcile.run_context import RunContext
from gpushare_node.reporting.results import Status


def handle_retry_request(context: RunContext, node: NodeView) -> None:
    """Forget what has failed, and whom the run waited for in vain. The annotation goes last: a run that dies is asked again."""
    if RETRY_ANNOTATION not in node.annotations:
        return
    folder = context.deps.folder
    journal = folder.journal()
    if journal is not None and journal.attempts:
        folder.write_journal(replace(journal, attempts=0))
    context.may_wait_for_tenants, context.drains_at, context.evictions = True, context.deps.clock.now(), DrainEvictions()
    context.cluster.annotate({RETRY_ANNOTATION: None})
    context.record_step("retry", "node", Status.CHANGED, f"{RETRY_ANNOTATION} was set")
