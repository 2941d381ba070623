"""The main job as steps: data about what runs, and the code that decides and runs it."""
