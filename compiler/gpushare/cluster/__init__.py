"""Clusters that exist: what a person has of one, as files or live, read only."""
