"""What the user asked for: its types, and how they are built from a document that the schema accepts."""
