"""What is in examples/ beside the intents and their bundles."""
