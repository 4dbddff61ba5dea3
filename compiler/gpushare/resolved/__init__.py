"""What every pool resolves to. Total: an intent that passed the rules cannot fail here."""
