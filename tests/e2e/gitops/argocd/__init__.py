"""Argo CD itself on a real cluster: its application controller and its repo server as processes."""
