"""DesiredPolicy: the policy that a run is for, and the text that it was read from."""

import hashlib

from gpushare_node.core.policy import Policy
from gpushare_node.core.structs import Struct


class DesiredPolicy(Struct):
    """What the node shall become."""

    policy: Policy
    text: str

    @property
    def digest(self) -> str:
        """A name for exactly this text, in the journal and in the log."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
