"""What statements do to a table's definition: a snapshot and a statement become a Change."""
