"""One side of a comparison: what a bundle makes of a cluster, from its intent and the policies of its pools."""

from collections.abc import Mapping

from gpushare.bundle import lock
from gpushare.compare import bundles
from gpushare.compare.files import Files, parsed
from gpushare.compare.snapshots import Pools, of_pool
from gpushare.core.diagnostics import Finding
from gpushare.core.prices import Price
from gpushare.facts.catalog.cards import Catalog
from gpushare.facts.nodes import selectors
from gpushare.intent.types import Intent, NvidiaStack
from gpushare.offering import backends, modes
from gpushare.resolved import policy
from gpushare.resolved.plan import Plan, VmPool, resolve_machines
from gpushare_node.contract.policy import of_document
from gpushare_node.contract.struct import NOTHING, Struct

_OPERATOR = "gpu-operator/values.yaml"


class Side(Struct):
    """`vm_pools` are those for virtual machines, which no policy concerns. `quotas`: (namespace, resource) → number.

    `mig_strategy` is that of gpu-operator's values, "" if each profile has its own; None without these values.
    """

    cluster: str
    pools: Pools
    vm_pools: Mapping[str, VmPool]
    quotas: Mapping[tuple[str, str], int]
    prices: Mapping[str, Price]
    observes: bool = False
    mig_strategy: str | None = None

    @property
    def effective(self) -> Pools:
        """The pools that the bundle's nodes have: a bundle that observes gives them none."""
        return NOTHING if self.observes else self.pools


def of_plan(plan: Plan) -> Side:
    """Return the side of an intent that was compiled."""
    strategy = None
    if plan.intent.platform.stack is NvidiaStack.GPU_OPERATOR and not plan.intent.observes:
        strategy = plan.operator_mig_strategy or ""
    return Side(
        cluster=plan.intent.name,
        pools={pool.name: of_pool(policy.of_pool(plan, pool), pool.pool, pool.card) for pool in plan.pools},
        vm_pools={pool.name: pool for pool in plan.vm_pools},
        quotas=_quotas({} if plan.intent.observes else {quota.namespace: dict(quota.hard) for quota in plan.quotas}),
        prices=plan.intent.prices,
        observes=plan.intent.observes,
        mig_strategy=strategy,
    )


def of_bundle(files: Files, intent: Intent, catalog: Catalog) -> Side | Finding:
    """Return the side of a bundle's files, of which `intent` is one, or what is missing in them."""
    chart = bundles.values(files)
    upstream = parsed(_OPERATOR, files[_OPERATOR]) if _OPERATOR in files else None
    pools, machines = {}, {}
    for pool in sorted(intent.pools, key=lambda pool: pool.name):
        card, path = catalog.get(pool.card), f"{bundles.POLICIES}{pool.name}.yaml"
        try:
            if not modes.of(pool).serves_vms:
                pools[pool.name] = of_pool(of_document(parsed(path, files[path]), []), pool, card)
            elif card is not None:
                machines[pool.name] = resolve_machines(pool, card, selectors.NodeAssignment(intent.pools).terms(pool))
        except (KeyError, ValueError):
            message = f"pool {pool.name} of {lock.INTENT} and the bundle's other files do not belong together"
            hint = "restore the files from version control, or compile the bundle again"
            return Finding(code="GS794", message=message, hints=(hint,), path=("spec", "pools", pool.name), on_key=True)
    limited = {(one.namespace, name) for one in intent.quotas if one.pool in pools for name in pools[one.pool].resources}
    return Side(
        cluster=intent.name,
        pools=pools,
        vm_pools=machines,
        quotas={key: number for key, number in _quotas(chart.get("quotas") or {}).items() if key in limited},
        prices=intent.prices,
        observes=intent.observes,
        mig_strategy=None if upstream is None else (upstream.get("mig") or {}).get("strategy") or "",
    )


def _quotas(quotas: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], int]:
    return {
        (namespace, backends.quota_resource(key)): number for namespace, hard in quotas.items() for key, number in hard.items()
    }
