"""Configuration: one schema (`schema`), composed by Hydra and validated (`compose`)."""
