"""The command `txlake`: arguments, the prompt, and the output. Reads the environment."""
