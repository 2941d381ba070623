"""The report of a migration, for users and programs.

Layers, lowest first:

- `document`: the report as JSON
- `drive`: files on Google Drive that a notebook may read
- `reference`: the table of rules as text, JSON and documentation
- `content`: files of /content that no cell creates
- `formats`: text, JSON, GitHub annotations and SARIF
- `kept`: reports that a workspace keeps for the dashboard
- `page`: the report as one HTML file
"""
