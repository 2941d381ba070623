"""Configuration: one schema, composed by Hydra, validated by pydantic. Layers, lowest first; each module imports only
modules above it in this list:

- `fields`: types of values
- `yaml_files`: reads and validates other YAML files
- `variables`: environment variables that a configuration may set
- `sources`: configuration files as text
- `interpolations`: the size of a configuration after `${section.key}` is resolved
- `bearing`: the geometry of a rolling bearing
- `training`: how a model is trained
- `models`: sizes and variants of the models
- `charts`: constants of the control charts
- `execution`: devices, precision, memory, processes and limits
- `data`: which data is read, and how it is split
- `scoring`: thresholds and events
- `schema`: every key
- `overrides`: environment variables and arguments of the command line
- `former_keys`: renamed and removed keys
- `faults`: all faults of a configuration
- `composition`: composes files and groups, with the line of each key
- `compose`: composes and validates a configuration
- `recipe`: values of `auto`
- `hardware`: tiers, model sizes and device profiles
"""
