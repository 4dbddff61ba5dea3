"""What becomes of the processes on a node's GPUs: who is over a cap, since when, and what follows. Pure.

`judge` is the way in; `inputs` has the words for what it must be told, `verdicts` those for what it says. Whoever needs a row
alone loads no judge: a node's boot does.
"""
