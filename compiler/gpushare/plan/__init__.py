"""What every pool becomes. Total: an intent that passed the rules cannot fail here."""
