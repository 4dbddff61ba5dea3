"""A whole Kubernetes cluster on one machine, of real parts, for tests and by hand."""
