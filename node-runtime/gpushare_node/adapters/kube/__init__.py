"""The third outside world: the API server. `cluster` has the words, `server` the real thing over the official client."""
