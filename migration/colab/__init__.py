"""Colab-specific parts of a notebook: names, paths and forms, and code that asks whether it runs there."""
