"""Adapter to the API server, over urllib3. `cluster` has the interface, `node_client` implements it."""
