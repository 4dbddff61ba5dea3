"""The node runtime of gpushare: brings the GPUs of one node to what the policy of its pool asks for."""

__version__ = "0.1.0"
