"""`gpushare-node enforce`: enforces the containers' caps and detects drift. Never changes hardware."""
