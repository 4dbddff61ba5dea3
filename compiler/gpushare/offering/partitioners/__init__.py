"""The programs of vendors that divide the GPUs of a node by a config of ours: a module for each."""
