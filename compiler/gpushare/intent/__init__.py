"""What the user asked for: the types of the intent, and how they are built from a document that the schema accepts."""
