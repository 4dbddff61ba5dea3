"""`python -m tests.support.fake_nvml`: the fake GPUs from a command line, for processes that are not the test.

    make FOLDER [CARD …]                    a node; writes its environment as KEY=VALUE lines
    put GPU PID MIB [--kind KIND]           GPU: index, GPU-UUID or MIG-UUID; MIB `-`: unknown
    take GPU PID
    show                                    GPUs, instances and processes as JSON

All but `make` find the node by GPUSHARE_FAKE_NVML.
"""

import argparse
import json
import os
from pathlib import Path

from tests.support.fake_nvml import FakeNvml, layout


def main() -> None:
    """Run one command. A wrong one ends with usage and exit code 2."""
    parser = argparse.ArgumentParser(prog="fake_nvml")
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("make")
    make.add_argument("folder", type=Path)
    make.add_argument("cards", nargs="*", default=["a100-sxm4-40gb"] * 8)
    make.add_argument("--driver", default="580.95.05")
    make.set_defaults(run=_make)
    put = commands.add_parser("put")
    put.add_argument("gpu")
    put.add_argument("pid", type=int)
    put.add_argument("mib")
    put.add_argument("--kind", choices=sorted(layout.KINDS), default="compute")
    put.set_defaults(run=_put)
    take = commands.add_parser("take")
    take.add_argument("gpu")
    take.add_argument("pid", type=int)
    take.set_defaults(run=_take)
    commands.add_parser("show").set_defaults(run=_show)
    arguments = parser.parse_args()
    arguments.run(arguments)


def _opened() -> FakeNvml:
    return FakeNvml(Path(os.environ["GPUSHARE_FAKE_NVML"]))


def _make(arguments: argparse.Namespace) -> None:
    made = FakeNvml.make(arguments.folder, arguments.cards, driver=arguments.driver)
    for name, value in made.environment.items():
        print(f"{name}={value}")


def _put(arguments: argparse.Namespace) -> None:
    fake_nvml = _opened()
    gpu, gi, ci = fake_nvml.find_device(arguments.gpu)
    used = None if arguments.mib == "-" else int(arguments.mib)
    fake_nvml.put(gpu, arguments.pid, used, gi=gi, ci=ci or 0, kind=arguments.kind)


def _take(arguments: argparse.Namespace) -> None:
    fake_nvml = _opened()
    fake_nvml.take(fake_nvml.find_device(arguments.gpu)[0], arguments.pid)


def _show(arguments: argparse.Namespace) -> None:
    print(json.dumps(_opened().show(), indent=2))


main()
