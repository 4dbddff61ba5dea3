"""Exit: the exit codes of the command. Values only; `--help` and the README use the same words."""

from enum import IntEnum

MEANINGS = """\
exit status:
  0    done; the node matches the policy
  1    a step failed, or the node does not match the policy
  2    invalid policy or command line, or (assert) the node's state cannot be read; nothing was changed
  69   the driver does not answer
  70   internal error; see the log
  75   another gpushare-node is running on this node; try again later
  130  interrupted by SIGINT
  143  interrupted by SIGTERM"""


class Exit(IntEnum):
    """Exit codes; 69, 70 and 75 are those of sysexits.h."""

    DONE = 0
    FAILED = 1
    WRONG = 2
    UNAVAILABLE = 69
    INTERNAL = 70
    LOCKED = 75
