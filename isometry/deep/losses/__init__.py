"""The losses, one file for each family."""
