"""Who may commit: footprints, winners, rules. Pure; every decision is a value. DESIGN section 4."""
