"""The bundle as files: artifacts, canonical digests, the lock, and the one writer."""
