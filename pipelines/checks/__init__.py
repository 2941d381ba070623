"""The validation checklist, one check a row of a table; see `pipelines.validate_training_outputs`."""
