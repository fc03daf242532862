"""What users hold: `connect` and the lake, its sessions and transactions; a table's log alone."""
