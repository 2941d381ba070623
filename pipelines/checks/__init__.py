"""The validation checklist: each check is a row of a table; see `pipelines.validate_training_outputs`."""
