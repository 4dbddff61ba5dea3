"""The commands with which a person installs the bundle and removes it, for every text that names them."""
