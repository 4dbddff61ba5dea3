"""The rollout of a pool as the policy and `nodes/pools.yaml` have it."""

from typing import Any

from gpushare.intent.types import Rollout


def entry(rollout: Rollout) -> dict[str, Any]:
    """Return the entry; `paused` and `windows` only if they are set."""
    windows = [
        {
            "days": list(window.days),
            "start": window.start,
            "durationSeconds": window.duration_seconds,
            "timezone": window.timezone,
        }
        for window in rollout.windows
    ]
    return (
        {
            "maxUnavailable": rollout.max_unavailable,
            "onBusy": rollout.on_busy.value,
            "drainTimeoutSeconds": rollout.drain_timeout_seconds,
        }
        | ({"paused": True} if rollout.is_paused else {})
        | ({"windows": windows} if windows else {})
    )
