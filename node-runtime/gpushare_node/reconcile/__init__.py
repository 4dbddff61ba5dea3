"""The reconcile loop: brings a node to its policy, or releases it; while it waits, `enforce` enforces the caps in force."""
