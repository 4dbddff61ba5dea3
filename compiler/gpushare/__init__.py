"""gpushare: one file that says how a cluster shares its GPUs, proved and compiled into what Kubernetes needs."""

__version__ = "0.1.0"
