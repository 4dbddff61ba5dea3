"""GPUs as they are, and one change of them: transaction, journal, rollback. Knows nothing of pods and pools."""
