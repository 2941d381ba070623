"""The report of a migration, for users and programs."""
