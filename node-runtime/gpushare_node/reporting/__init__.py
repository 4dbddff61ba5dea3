"""What the runtime reports: condition reasons, messages, metrics and log lines. Decides nothing; sends nothing by itself."""
