"""The command `gpushare-node`, one module for each sub-command."""
