"""What to do about a pod that kubelet, a driver or the container runtime refused, by the words of the refusal. Pure.

The words are those of kubelet's device manager (pkg/kubelet/cm/devicemanager/manager.go), of NVIDIA's device plugin
(internal/plugin/server.go) and DRA driver (device_state.go and validate.go), and of the CDI library of the container runtimes.
"""

from gpushare.offering.backends.dra import DRIVER

_AGAIN = "Delete the pod, so that its controller makes a new one"

_IF_AGAIN = f"{_AGAIN}; if that repeats, `gpushare explain NODE` says what is wrong."
REMEDIES = {
    "maximum request size for shared resources": (
        "Request one share per container. A request for more is refused; it would add neither memory nor speed."
    ),
    "unresolvable CDI devices": (
        "The container runtime knows no such device: its CDI specification is missing or old. Check the container toolkit's "
        "pod on the node, or run `nvidia-ctk cdi generate` there; then delete the pod."
    ),
    "gpu is lost": ("A GPU has fallen off the bus. `gpushare explain NODE` names it; drain and reboot the node."),
    "unknown device": (
        "Kubelet gave the pod a device that the device plugin no longer has. Restart the plugin's pod on the node, then delete "
        "this pod."
    ),
    "unregistered device": (
        "No device plugin is registered for the resource: after a reboot kubelet starts pods before the plugin is back. "
        + _IF_AGAIN
    ),
    "unhealthy devices": (
        "The device plugin offers no healthy device: after a reboot kubelet starts pods before the plugin is back, and an XID "
        "makes a GPU unhealthy. " + _IF_AGAIN
    ),
    "number of devices unavailable": (
        "Kubelet counts devices as taken by pods that have ended, or the plugin has just restarted. "
        f"{_AGAIN}; if that repeats although devices are free, restart kubelet on the node."
    ),
    "invalid cdi spec": (
        "Two requests of one claim got parts of one GPU, which the driver cannot prepare. Give the claim the constraint "
        f"`distinctAttribute: {DRIVER}/uuid`, or ask for more of one part; then delete the pod."
    ),
    "has conflicting configuration": (
        "Claims with another interval are on the GPU, such as those from before a change of the pool's. The pod starts when "
        "the last of them has ended there."
    ),
    "feature gate is not enabled": (
        "The DRA driver on the node lacks a gate that the pool needs. Install it with the values of the bundle; the pod starts "
        "then."
    ),
    "resourceclaimtemplate": (
        "`gpushare claims NAMESPACE` prints the templates of the pools that the namespace may use; add the one that is missing."
    ),
    "exceeded quota": "Delete pods of the namespace that hold shares, or have `quotas` in the intent raised.",
    "ValidatingAdmissionPolicy": ("Change the pod as the message says: the pool's rules for pods are in the bundle's README."),
}
"""The first of these words that is in a message, in any case, decides."""

_LOOK = "Read the message above; `kubectl describe` shows more."


def remedy(text: str) -> str:
    """Return what to do about a refusal with this message."""
    lowered = text.lower()
    return next((what for words, what in REMEDIES.items() if words.lower() in lowered), _LOOK)
