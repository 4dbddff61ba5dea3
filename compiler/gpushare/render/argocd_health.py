"""Health checks for Argo CD, in Lua: of kinds whose state Argo CD does not see by itself.

Its Lua has no string functions. A check replaces Argo CD's own for every object of the kind, so that of DaemonSets repeats it:
gitops-engine, pkg/health/health_daemonset.go.
"""

from collections.abc import Iterator

from gpushare.facts.vendors.nvidia import NVIDIA
from gpushare.intent import gitops
from gpushare.intent.types import NvidiaStack
from gpushare.resolved.plan import Plan

_CLUSTER_POLICY = """\
hs = {status = "Progressing", message = "waiting for the operator"}
if obj.status ~= nil and obj.status.state ~= nil then
  hs.message = obj.status.state
  if obj.status.state == "ready" then
    hs.status = "Healthy"
  elseif obj.status.state == "disabled" or obj.status.state == "ignored" then
    hs.status = "Suspended"
  end
end
return hs
"""

_DAEMON_SET = """\
hs = {status = "Progressing", message = "waiting for the controller of DaemonSets"}
local status = obj.status or {}
if (status.observedGeneration or 0) < obj.metadata.generation then
  return hs
end
local wanted = status.desiredNumberScheduled or 0
local updated, available = status.updatedNumberScheduled or 0, status.numberAvailable or 0
local strategy = obj.spec.updateStrategy or {}
if strategy.type == "OnDelete" or (updated >= wanted and available >= wanted) then
  hs.status = "Healthy"
  hs.message = updated .. " of " .. wanted .. " pods are updated, " .. available .. " are available"
  return hs
end
hs.message = "waiting for " .. wanted .. " pods: " .. updated .. " are updated, " .. available .. " are available"
local annotations = obj.spec.template.metadata.annotations or {}
local policy = annotations["gpushare.dev/policy"]
for _, condition in ipairs(status.conditions or {}) do
  if policy ~= nil and condition.type == "GPUShareReady." .. policy then
    hs.status = "Degraded"
    hs.message = condition.reason .. ": " .. condition.message
  end
end
return hs
"""


def checks(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield each kind, as `<group>_<kind>`, with its check.

    A DaemonSet is Degraded while it is not available and its status says of its present policy that a node fails: the node
    runtime writes that. A bundle that observes fails nowhere.
    """
    if not plan.intent.observes:
        yield "apps_DaemonSet", _DAEMON_SET
    if gitops.installs_upstream(plan.intent) and plan.intent.platform.stack is NvidiaStack.GPU_OPERATOR:
        yield f"{NVIDIA.domain}_ClusterPolicy", _CLUSTER_POLICY
