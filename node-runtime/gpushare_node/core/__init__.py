"""What every other package uses: the policy and the tenancy, strict reading of documents, the clock, a thread with one job."""
