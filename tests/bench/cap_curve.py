"""How much can be held for how long: the table of docs/node.md. Run `python -m tests.bench.cap_curve`.

Simulated pods under a cap with the default grace, the guard's own code, and the loop's rhythm. A pod that was ended comes again
after three seconds. What is held above the cap on average is the share of the time times what the pod takes.
"""

from collections.abc import Callable, Iterator
from random import Random

from tests.node.guard.duty_model import Duty, Pod

SECONDS = 1200
HEAD = ("| who | each is over its cap for at most | one of them is | ended first after |", "|---|---|---|---|")


def waves(over: float, calm: float) -> Callable[[], list[Pod]]:
    return lambda: [Pod(over=over, calm=calm)]


def four_namespaces() -> list[Pod]:
    return [Pod(namespace=f"n-{number}", over=12, calm=36, shift=12.0 * number) for number in range(4)]


CASES: dict[str, Callable[[], list[Pod]]] = {
    "a container, 12 s over and 12 s within": waves(12, 12),
    "a container, 12 s over and 18 s within": waves(12, 18),
    "a container, 12 s over and 30 s within": waves(12, 30),
    "a container, 1 s over and 1 s within": waves(1, 1),
    "a pod that is over from its start": lambda: [Pod(over=1e9)],
    "a container that is, started again in its pod": lambda: [Pod(over=1e9, in_place=True)],
    "two such pods of a namespace": lambda: [Pod(over=1e9) for _ in range(2)],
    "four such pods of a namespace": lambda: [Pod(over=1e9) for _ in range(4)],
    "four pods of a namespace in turns of 12 s": lambda: [Pod(over=12, calm=36, shift=12.0 * number) for number in range(4)],
    "four pods of a namespace in turns of 2 s": lambda: [Pod(over=2, calm=6, shift=2.0 * number) for number in range(4)],
    "four pods of four namespaces in turns of 12 s": four_namespaces,
}


def rows() -> Iterator[str]:
    """The table, of the worst ten minutes each."""
    yield from HEAD
    for who, make in CASES.items():
        duty = Duty(pods=make(), rng=Random(7))
        duty.run(SECONDS)
        ended = [at for pod in duty.pods for at in pod.ended]
        first = f"{min(ended):.0f} s" if ended else f"not in {SECONDS // 60} min"
        yield f"| {who} | {max(duty.shares()):.0%} | {duty.share():.0%} | {first} |"


if __name__ == "__main__":
    print("\n".join(rows()))
