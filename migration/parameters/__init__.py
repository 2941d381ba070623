"""Form fields and the two cells a migrated notebook begins with."""
