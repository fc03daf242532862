"""A module for each step of the schema; a released step is never changed."""
