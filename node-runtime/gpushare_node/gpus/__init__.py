"""The state of the node's GPUs, and one change to it: transaction, journal, rollback. Knows nothing about pods and pools."""
