"""Programs that the tests run, and where they come from."""
