"""LF1xx: the file, its structure and its outputs. The stages of `migration.notebook` report under these ids."""

from __future__ import annotations

from migration.notebook.findings import Keeps
from migration.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        "LF101",
        "text that is not JSON in UTF-8",
        "a byte order mark, UTF-16 or UTF-32; the numbers `NaN` and `Infinity`",
        "UTF-8 without a mark; `null`",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF106",
        "invalid structure",
        "what `nbformat` rejects: missing, misplaced or invalid fields of cells and outputs",
        "the nearest valid form; other invalid parts are removed",
        Keeps.EXACT,
    ),
    Rule(
        "LF103",
        "older notebook format",
        "nbformat 1 to 3, and 4.0 to 4.4",
        "nbformat 4.5 with a unique id for every cell",
        Keeps.EXACT,
    ),
    Rule(
        "LF104",
        "kernel of another machine",
        "a kernel for Python 2, or one with a name that other machines do not have",
        "`python3`; the message keeps the name",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF105",
        "kernel or language missing",
        "missing `kernelspec`, `kernelspec.language` or `language_info.name`, without which papermill runs nothing",
        "the kernel and language that the notebook implies, by default `python3`",
        Keeps.EXACT,
    ),
    Rule(
        "LF107",
        "missing, invalid or duplicated cell ids",
        "a cell's `id` that nbformat rejects, or that an earlier cell has",
        "a unique id that is computed from the cell's position and content",
        Keeps.EXACT,
    ),
    Rule(
        "LF110",
        "Colab's metadata of the notebook",
        "`colab`, `accelerator`, `gpuClass`",
        "nothing",
        Keeps.EXACT,
    ),
    Rule(
        "LF111",
        "Colab's metadata of a cell",
        "`colab`, `colab_type`, `outputId`, `executionInfo`, `base_uri`, `referenced_widgets`, `cellView`, `id`",
        "nothing",
        Keeps.EXACT,
    ),
    Rule(
        "LF112",
        "a person's name and account",
        "`executionInfo.user`",
        "nothing",
        Keeps.EXACT,
    ),
    Rule(
        "LF113",
        "accelerator",
        '`"accelerator": "GPU"` or `"TPU"`, `colab.gpuType`, `colab.machine_shape`',
        "nothing; the report contains the accelerator of the notebook",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF114",
        "hidden code of a form",
        '`"cellView": "form"`, `#@title X {display-mode: "form"}`',
        "`jupyter.source_hidden`, which JupyterLab knows",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF115",
        "state of widgets",
        "`metadata.widgets` in the form of Colab, without `state`, which no other program reads",
        "nothing; the state that Jupyter saves is kept",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF120",
        "Colab's own output formats",
        "`application/vnd.google.colaboratory.*`, `application/vnd.colab-display-data+json`, Colab's output tags",
        "nothing: the other formats of the output are kept",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF121",
        "HTML and JavaScript for Colab's page",
        "interactive data frames, upload and download widgets, anything that calls `google.colab` in the browser",
        "a data frame's plain table, or the plain text; an output without other formats is removed",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF122",
        "views of widgets",
        "`application/vnd.jupyter.widget-view+json` in a Colab notebook without the state of its widgets",
        "the plain text of the same output",
        Keeps.EQUIVALENT,
    ),
    Rule(
        "LF123",
        "secrets in outputs",
        "tokens, keys and passwords that were printed",
        "`‹secret›` in their place",
        Keeps.NEEDS_HUMAN,
    ),
)
