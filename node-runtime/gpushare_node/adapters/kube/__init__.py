"""The third outside world: the API server. `cluster` has the words, `node_client` the real thing over the official client."""
