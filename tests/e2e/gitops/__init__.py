"""The bundle, synced by the controllers of GitOps themselves."""
