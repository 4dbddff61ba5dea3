"""`python -m tests.e2e.cluster.amd_plugin FOLDER STRATEGY`: AMD's device plugin on a node, with a made-up sysfs in the folder.

It reads the GPUs once, when it starts, and registers what it has found until it is ended.
"""

import signal
import sys
from pathlib import Path

from tests.e2e.cluster.plugin.offer import Offer
from tests.e2e.cluster.plugin.server import Resource
from tests.support.fake_amd.offers import offers

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    resources = [Resource(name, Offer(ids=tuple(ids))) for name, ids in offers(Path(sys.argv[1]), sys.argv[2]).items()]
    for resource in resources:
        resource.start()
    signal.sigwait((signal.SIGTERM,))
    for resource in resources:
        resource.stop()
