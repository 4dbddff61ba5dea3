"""Facts about cards, charts and images, read from `profiles/`."""
