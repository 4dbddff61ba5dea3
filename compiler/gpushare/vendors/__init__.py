"""What is a vendor's own: the names of its resources, labels and charts, and where its cards are."""
