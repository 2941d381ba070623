"""What was found and done, for people and programs."""
