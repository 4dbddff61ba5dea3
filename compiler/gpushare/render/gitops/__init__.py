"""The tools that sync a bundle from Git: one module for each, registered in `tools`."""
