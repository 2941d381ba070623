"""Cleans saved outputs: removes secrets and everything that only Colab's page can show; other outputs are kept."""

from __future__ import annotations

import re
from typing import Any

from core.secrets.finding import Secret, find_secrets, masked
from migration.notebook.findings import Keeps, Notes, listed
from migration.notebook.repairing import MANY_LINES

COLAB_MIME, COLAB_PAGE, WIDGET_VIEW, SECRET = "LF120", "LF121", "LF122", "LF123"


_WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
_COLAB_MIMES = ("application/vnd.google.colaboratory.", "application/vnd.colab-display-data")
_COLAB_METADATA = ("tags", "colab")
_SCRIPT_MIMES = ("application/javascript", "application/vnd.holoviews_load.v0+json")
_CALLS_COLAB = re.compile(r"google\.colab(?:\.\w+|\s+Python module)|/google\.colab/")
_DOWNLOAD_CALL = re.compile(r"\s*download\(\"download_[\w-]+\"")
# The HTML of pandas, inside the HTML that Colab adds around it.
_PLAIN_TABLE = re.compile(r"<div>\s*<style[^>]*>.*?</table>\s*(?:<p>[^<]*</p>\s*)?</div>", re.DOTALL)
_BARE_OBJECT = re.compile(r"\s*<(?:IPython\.core\.display|google\.colab)\.[\w.]+(?: object)?(?: at 0x[0-9a-f]+)?>\s*")
# A chart that Colab draws below a table without being asked, with its code, or the title above such charts.
_SUGGESTED_CHART = re.compile(r"\s*<\w+\b[^>]*\bclass=\"colab-quickchart-(?:chart-with-code|section-title)\"")
_SIGNED = re.compile(r"[?&;]X-(?:Amz|Goog)-Signature=\Z", re.IGNORECASE)
_BINARY_MIMES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "audio/", "video/")


def clean_outputs(
    outputs: list[dict[str, Any]], cell: int, notes: Notes, *, drops_views: bool = False
) -> list[dict[str, Any]]:
    """The outputs of a repaired code cell without Colab's parts and without secrets. `drops_views`: the widgets of its
    views are missing.

    Unchanged outputs are the same objects; so is the list if nothing changed.
    """
    new = [_clean(output, cell, notes, drops_views) for output in outputs]
    if all(after is before for after, before in zip(new, outputs, strict=True)):
        return outputs
    return [output for output in new if output is not None]


def _clean(output: dict[str, Any], cell: int, notes: Notes, drops_views: bool) -> dict[str, Any] | None:
    if "data" not in output:
        return _without_secrets(output, cell, notes)
    data = _clean_data(output["data"], cell, notes, drops_views)
    if not data and output["data"]:
        return None
    removed = output["data"].keys() - data.keys()
    metadata = {key: value for key, value in output["metadata"].items() if key not in removed}
    if any(key in metadata for key in _COLAB_METADATA):
        metadata = {key: value for key, value in metadata.items() if key not in _COLAB_METADATA}
        notes.add(COLAB_MIME, "tags that Colab adds to outputs were removed", cell)
    if data is not output["data"] or len(metadata) < len(output["metadata"]):
        output = {**output, "data": data, "metadata": metadata}
    return _without_secrets(output, cell, notes)


def _clean_data(data: dict[str, Any], cell: int, notes: Notes, drops_views: bool) -> dict[str, Any]:
    """The formats of an output that a plain notebook can show; empty if there are none."""
    html = data.get("text/html")
    if isinstance(html, str) and _SUGGESTED_CHART.match(html):
        notes.add(COLAB_PAGE, "charts that Colab suggested below a table were removed", cell)
        return {}
    own = {mime for mime in data if mime.startswith(_COLAB_MIMES)}
    if own:
        notes.add(COLAB_MIME, f"output formats that only Colab shows were removed: {listed(own)}", cell)
    if drops_views and _WIDGET_MIME in data:
        notes.add(WIDGET_VIEW, "the view of a missing widget was removed", cell)
        own.add(_WIDGET_MIME)
    changed = {}
    if isinstance(html, str) and _is_colab_html(html):
        changed["text/html"] = _plain_table(html)
        what = (
            "Colab's buttons around a table were removed"
            if changed["text/html"]
            else "HTML for Colab's page was removed"
        )
        notes.add(COLAB_PAGE, what, cell)
    scripts = [mime for mime in _SCRIPT_MIMES if isinstance(data.get(mime), str)]
    if scripts := [mime for mime in scripts if "google.colab" in data[mime] or _DOWNLOAD_CALL.match(data[mime])]:
        changed |= dict.fromkeys(scripts)
        notes.add(COLAB_PAGE, "JavaScript for Colab's page was removed", cell)
    if not own and not changed:
        return data
    new = {mime: changed.get(mime, value) for mime, value in data.items() if mime not in own}
    new = {mime: value for mime, value in new.items() if value is not None}
    # The name of a class is useless without the object.
    text = new.get("text/plain")
    if isinstance(text, str) and _BARE_OBJECT.fullmatch(text) and (len(new) == 1 or "google.colab" in text):
        del new["text/plain"]
    return new


def _is_colab_html(html: str) -> bool:
    if "colab" not in html:
        return False
    return "colab-df" in html or ("<script" in html and _CALLS_COLAB.search(html) is not None)


def _plain_table(html: str) -> str | None:
    table = _PLAIN_TABLE.search(html)
    return table[0] if table and not _is_colab_html(table[0]) else None


# ------------------------------------------------------------------------------------------------------------ secrets
def _without_secrets(output: dict[str, Any], cell: int, notes: Notes) -> dict[str, Any]:
    """The output with its secrets masked; the same object if it contains none."""
    new = dict(output)
    for key, mask in (("text", _masked_stream), ("evalue", _masked), ("traceback", _masked)):
        if key in output:
            new[key] = mask(output[key], cell, notes)
    if "data" in output:
        data = output["data"]
        shown = {mime: value for mime, value in data.items() if not mime.startswith(_BINARY_MIMES)}
        clean = {mime: _masked(value, cell, notes) for mime, value in shown.items()}
        new["data"] = {**data, **clean} if any(clean[mime] is not shown[mime] for mime in shown) else data
    return new if any(new[key] is not output[key] for key in output) else output


def _masked(value: Any, cell: int, notes: Notes) -> Any:
    """A text, or the texts in a JSON value, without secrets; the same object if there are none."""
    if isinstance(value, str):
        found = find_secrets(value)
        for kind, is_short_lived in {(secret.kind, _is_short_lived(value, secret)) for secret in found}:
            _note_secret(kind, cell, notes, is_short_lived)
        return masked(value) if found else value
    if isinstance(value, list):
        new = [item if isinstance(item, int | float) else _masked(item, cell, notes) for item in value]
        return new if any(after is not before for after, before in zip(new, value, strict=True)) else value
    if isinstance(value, dict):
        changed = {key: _masked(item, cell, notes) for key, item in value.items()}
        return changed if any(changed[key] is not value[key] for key in value) else value
    return value


def _masked_stream(value: str | list[str], cell: int, notes: Notes) -> str | list[str]:
    """Like `_masked`; the lines of a long list are joined in blocks."""
    if isinstance(value, str):
        return _masked(value, cell, notes)
    lines = []
    for start in range(0, len(value), MANY_LINES):
        part = value[start : start + MANY_LINES]
        text = "".join(part)
        clean = _masked(text, cell, notes)
        lines += part if clean is text else clean.splitlines(True)
    return value if lines == value else lines


def _is_short_lived(text: str, secret: Secret) -> bool:
    """Whether a secret is a part of a signed link, as `wget` prints it: its signature, which is valid for at most seven
    days, or the id of the key, which is public."""
    return secret.kind == "AWS key id" or _SIGNED.search(text, max(0, secret.start - 30), secret.start) is not None


def _note_secret(kind: str, cell: int, notes: Notes, is_short_lived: bool) -> None:
    message = f"an output showed a secret ({kind}), now masked"
    if is_short_lived:
        notes.add(SECRET, message, cell, keeps=Keeps.EQUIVALENT)
        return
    action = "revoke the secret: everyone with this notebook has it"
    notes.add(SECRET, message, cell, keeps=Keeps.NEEDS_HUMAN, action=action)
