"""Writes an executed notebook as an HTML page, to which the dashboard links. The page contains no script and makes no
requests."""

from __future__ import annotations

import logging
from html import escape
from pathlib import Path

from core.workspace import write_text

# The output of a notebook may contain any markup, so scripts and connections are forbidden, also if the file is opened
# from a disk.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 76rem; margin: 0 auto; padding: 1rem; font: 1rem / 1.5 system-ui, sans-serif; }
pre { margin: 0.4rem 0; overflow-x: auto; font-size: 0.85rem; }
.output_text pre { white-space: pre-wrap; }
.input pre { padding: 0.6rem; border: 1px solid #8886; border-radius: 6px; }
.output_error pre { border-left: 4px solid #b3261e; padding-left: 0.6rem; }
.output_area { overflow-x: auto; }
img { max-width: 100%; }
table { border: 0; border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top; }
th, td { border: 0; border-top: 1px solid #8886; }
.anchor-link { display: none; }
"""


def write_page(executed: Path) -> Path | None:
    """Writes the page next to an executed notebook, if there is one; returns its path."""
    import nbformat
    from nbconvert import HTMLExporter

    if not executed.is_file():
        return None
    exporter = HTMLExporter(template_name="basic")
    exporter.log.setLevel(logging.ERROR)  # it warns of figures without an alternative text
    content, _ = exporter.from_notebook_node(nbformat.read(executed, as_version=4))
    title = escape(f"{executed.stem}, run {executed.parent.name}")
    page = executed.with_suffix(".html")
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{title}</title>'
    head += f"<style>{_STYLE}</style>"
    write_text(page, f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{content}\n</body>\n</html>\n')
    return page
