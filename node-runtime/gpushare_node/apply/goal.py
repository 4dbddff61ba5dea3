"""Goal: the policy that a run is for, and the text that it was read from."""

import hashlib
from dataclasses import dataclass

from gpushare_node.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What the node shall become."""

    policy: Policy
    text: str

    @property
    def digest(self) -> str:
        """A name for exactly this text, in the journal and in the log."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
