"""What the runtime says: reasons, sentences, metrics and log lines. Decides nothing; sends nothing by itself."""
