"""What every other package uses: policy and tenancy, strict reading of documents, the clock, a worker thread."""
