"""`gpushare-node enforce`: holds containers to their caps and watches for drift. Never changes hardware."""
