"""The notebook as a file: read, repaired, cleaned, written; what is reported of it; secrets and edits of its texts."""
