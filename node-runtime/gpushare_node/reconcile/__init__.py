"""`gpushare-node apply`: brings the node to its pool's policy, and says so only when it is true."""
