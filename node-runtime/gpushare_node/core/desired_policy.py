"""DesiredPolicy: the policy that a run applies, and the text that it was read from."""

import hashlib

from gpushare_node.contract.policy import Policy
from gpushare_node.contract.struct import Struct


class DesiredPolicy(Struct):
    """The policy that the node must follow."""

    policy: Policy
    text: str

    @property
    def digest(self) -> str:
        """Return a short name for exactly this text; the journal and the log use it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
