"""From measured use of GPU memory to a change of the intent, tested on the part of the history that it was not learned from."""
