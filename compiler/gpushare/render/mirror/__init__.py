"""Images for sites without the internet: which to copy, where to, in which tool's words, and which a registry lacks."""
