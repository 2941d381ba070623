"""The notebook as a file: read, repaired, cleaned, written."""
