"""How a card must be shared so that a number of users fits: every mode, what it gives, and how many nodes it needs."""
