"""The drivers of GPUs: `driver` has the interface for every vendor, a folder each vendor's own code."""
