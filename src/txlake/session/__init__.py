"""Statements are carried out: names resolved, work handed to the data plane, changes committed."""
