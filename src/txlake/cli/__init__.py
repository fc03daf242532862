"""The command `txlake`: arguments, the prompt, and what is printed. Reads the environment."""
