"""The outside world, one package each; they do not know each other."""
