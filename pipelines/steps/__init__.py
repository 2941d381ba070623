"""The steps of the pipeline: a table of the steps, and the code that selects and runs them."""
