"""Adapters to the outside world: one package for each system; the packages do not import each other."""
