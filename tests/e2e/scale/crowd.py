"""Hundreds of clients of a real API server in one process, each with connections and threads of its own."""

import os
import sys
import threading

import urllib3
from urllib3.util.ssl_ import create_urllib3_context

from gpushare_node.adapters.kube.connection import ApiEndpoint, find_endpoint
from gpushare_node.contract.struct import replace


def shared_endpoint() -> ApiEndpoint:
    """The server that KUBECONFIG names, for all clients of this process. ClusterError.

    The system's certificates are read once, and not for each connection, of which that is most of the cost.
    """
    threading.stack_size(512 * 1024)
    # A thread that wants to run asks for it as often as this: at 5 ms, hundreds do little else after the server's restart.
    sys.setswitchinterval(0.2)
    address, context = find_endpoint(os.environ), create_urllib3_context()
    context.check_hostname = False  # no client of the tests' cluster does

    def open_pool() -> urllib3.PoolManager:
        pool = address.open_pool()
        pool.connection_pool_kw["ssl_context"] = context
        return pool

    return replace(address, open_pool=open_pool)
