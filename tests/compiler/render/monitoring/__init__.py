"""The alert rules, and promtool's word on each of them."""
