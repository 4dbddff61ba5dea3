"""Evaluates the GPU processes of a node: which container is over its cap, since when, and what follows. Pure.

`evaluate` is the entry point; `inputs` has the types that it takes, `verdicts` those that it returns. Code that needs only a
process entry does not import `evaluate`: the node's boot is such code.
"""
