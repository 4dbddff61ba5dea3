"""Intents of the sizes that the benchmarks and the scale tests need, as text."""

HEAD = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: bench}\nspec:\n  pools:\n"

MODES = (
    ("t4", 4, "{mode: time-slicing, replicas: 4}"),
    ("l40s", 4, "{mode: time-slicing, replicas: 8, placement: pack}"),
    ("a100-sxm4-40gb", 8, "{mode: mig, layout: {2g.10gb: 2, 1g.5gb: 3}}"),
    ("a100-sxm4-40gb", 8, "{mode: mig, layout: {1g.5gb: 7}, replicas: 2}"),
    ("h100-sxm5-80gb", 8, "{mode: exclusive}"),
)


def pool(number: int, nodes: str) -> str:
    """One pool; the modes take turns."""
    card, gpus, sharing = MODES[number % len(MODES)]
    fields = {"card": card, "nodes": nodes, "gpusPerNode": gpus, "sharing": sharing}
    return f"    pool-{number:04}:\n" + "".join(f"      {key}: {value}\n" for key, value in fields.items())


def many_pools(count: int, nodes: int) -> str:
    """`count` pools of `nodes` named nodes each."""

    def names(number: int) -> str:
        return "{names: [" + ", ".join(f"node-{number:04}-{node:03}" for node in range(nodes)) + "]}"

    return HEAD + "".join(pool(number, names(number)) for number in range(count))
