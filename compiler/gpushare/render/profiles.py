"""`chart/files/profiles/<key>.yaml`: the device-plugin configs in use, and former ones that nodes may still have.

The chart puts each into the ConfigMap under two keys, `<key>-a` and `<key>-b`.
"""

from gpushare.bundle.lock import Lock
from gpushare.core import emit


def profiles(new_lock: Lock) -> dict[str, str]:
    """Return every config as text, by key."""
    return {key: emit.yaml_text(config) for key, config in new_lock.profiles.every().items()}
