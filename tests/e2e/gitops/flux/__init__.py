"""Flux itself on a real cluster: its source-controller and kustomize-controller as processes."""
