"""The labels of nodes that the node runtime sets or heeds: docs/bundle.md."""

POOL_LABEL = "gpushare.dev/pool"
"""The pool that the node belongs to, or belonged to until it is released."""

PROFILE_LABEL = "gpushare.dev/profile"
"""What the node runtime sets beside the plugin's own label."""

BACKEND_LABEL = "gpushare.dev/backend"
"""Which back end may run on a node."""

VENDOR_LABEL = "gpushare.dev/vendor"
"""Whose GPUs the node has."""

AWAY_LABEL, AWAY = "gpushare.dev/runtime", "away"
"""The label by which an administrator takes the runtime off a node: docs/troubleshooting.md."""
