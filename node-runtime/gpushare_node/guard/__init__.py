"""What becomes of the processes on a node's GPUs: who is over a cap, since when, and what follows. Pure.

`evaluate` is the entry point; `inputs` has the types that it takes, `verdicts` those that it returns. Who needs only a process
entry does not import it: a node's boot does so.
"""
