"""What the compiler and the node runtime agree on: one definition of each type, name and format that both use. Pure."""
