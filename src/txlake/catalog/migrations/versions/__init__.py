"""One module a step; what a step did is never changed afterwards."""
