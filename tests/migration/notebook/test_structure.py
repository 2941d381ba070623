import copy
import json

import nbformat
import pytest
from papermill.iorw import load_notebook_node
from papermill.utils import nb_kernel_name, nb_language

from migration.notebook.findings import Keeps
from migration.notebook.structure import clean, with_ids
from migration.report.document import UPKEEP
from migration.rules.table import RULES
from tests.migration.made_notebooks import is_valid, written


def code(source="x = 1", **fields):
    return {"cell_type": "code", "metadata": {}, "source": source, "execution_count": None, "outputs": [], **fields}


def of_cells(*cells, minor=0, **metadata):
    return {"nbformat": 4, "nbformat_minor": minor, "metadata": metadata, "cells": list(cells)}


PYTHON = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
          "language_info": {"name": "python"}}  # fmt: skip


STATE = "application/vnd.jupyter.widget-state+json"


def rules(findings):
    return [finding.rule for finding in findings]


def test_cleaning_a_colab_notebook_is_idempotent():
    user = {"displayName": "Jane Roe", "userId": "0123456789", "photoUrl": "https://host.org/p.jpg"}
    colab = {"base_uri": "https://localhost:8080/", "height": 34}
    cells = [
        {"cell_type": "markdown", "metadata": {"id": "aA1", "colab_type": "text"}, "source": "# T"},
        code(metadata={"id": "aA1", "colab_type": "code", "colab": colab, "outputId": "b", "tags": ["mine"],
                       "executionInfo": {"status": "ok", "user": user, "user_tz": -60}}),
        code(metadata={"id": "c", "cellView": "form", "jupyter": {"outputs_hidden": True}, "deletable": False}),
        code(metadata={"id": "d", "cellView": "both", "trusted": True, "referenced_widgets": ["a"]}),
    ]  # fmt: skip
    notebook = of_cells(
        *cells,
        colab={"name": "x.ipynb", "provenance": [], "gpuType": "T4", "machine_shape": "hm"},
        accelerator="GPU",
        gpuClass="standard",
        kernelspec={"name": "python3", "display_name": "Python 3"},
        widgets={"application/vnd.jupyter.widget-state+json": {}},
        toc={"base_numbering": 1},
        orig_nbformat=2,
    )
    before = copy.deepcopy(notebook)
    cleaned, hardware, findings = clean(notebook)
    assert notebook == before
    assert hardware == "GPU T4"
    assert cleaned["metadata"] == {"toc": {"base_numbering": 1}, **PYTHON}
    assert [cell["metadata"] for cell in cleaned["cells"]] == [
        {},
        {"tags": ["mine"]},
        {"jupyter": {"outputs_hidden": True, "source_hidden": True}, "deletable": False},
        {},
    ]
    assert is_valid(cleaned)
    assert rules(findings) == [
        "LF103", "LF105", "LF110", "LF111", "LF112", "LF113", "LF113", "LF114", "LF115"
    ]  # fmt: skip
    assert "Jane" not in written(cleaned) + str(findings)
    (need,) = [finding for finding in findings if finding.action]
    assert "16 GB" in need.action
    assert clean(cleaned) == (cleaned, None, [])


@pytest.mark.parametrize(
    "metadata, kept",
    [
        ({"colab": {}}, False),
        ({"widgets": {STATE: {"a": {"model_name": "M"}}}}, False),
        ({"widgets": {STATE: {"state": {"a": {}}}}}, False),
        ({"colab": {}, "widgets": {STATE: {"state": {"a": {"model_name": "M"}}}}}, True),
        ({}, True),
    ],
)
def test_widgets_stay_unless_colab_saved_them(metadata, kept):
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}, "text/plain": "1 of 2"}
    output = {"output_type": "display_data", "data": view, "metadata": {}}
    cleaned, _, findings = clean(of_cells(code(outputs=[output]), **metadata))
    assert cleaned["cells"][0]["outputs"] == [output if kept else {**output, "data": {"text/plain": "1 of 2"}}]
    assert ("LF122" in rules(findings)) is not kept
    assert ("widgets" in cleaned["metadata"]) is (kept and "widgets" in metadata)
    assert is_valid(cleaned)
    assert clean(cleaned) == (cleaned, None, [])


def test_every_finding_is_of_a_documented_rule():
    documented = {rule.id for rule in RULES}
    assert documented >= UPKEEP | {
        *("LF110", "LF111", "LF112", "LF113", "LF114", "LF115", "LF120", "LF121", "LF122"),
    }


@pytest.mark.parametrize(
    "accelerator, model, hardware",
    [
        ("GPU", None, "GPU"),
        ("GPU", "A100", "GPU A100"),
        ("GPU", "V100", "GPU V100"),
        ("TPU", None, "TPU"),
        ("TPU", "V5E1", "TPU V5E1"),
        ("TPU", "V28", "TPU V28"),
        ("TPU", "T4", "TPU"),
        ("GPU", ["T4"], "GPU"),
        ("NONE", "T4", None),
        ("None", None, None),
        ("CPU", None, None),
        (None, "T4", None),
        (3, "T4", None),
    ],
)
def test_the_colab_accelerator_is_reported(accelerator, model, hardware):
    cleaned, output, findings = clean(of_cells(accelerator=accelerator, colab={"gpuType": model}))
    assert output == hardware
    assert ("LF113" in rules(findings)) == (hardware is not None)
    assert cleaned["metadata"] == PYTHON


def ids(cells):
    return [cell["id"] for cell in cells]


def test_valid_ids_stay_and_new_ids_are_unique_and_deterministic():
    cells = [
        code(id="keep-1"),
        code(id="keep-1"),
        code(id="not valid!"),
        code(id=7),
        code(),
        code("y"),
        code(id="z" * 64),
    ]
    cleaned, _, findings = clean(of_cells(*cells, minor=5))
    found = ids(cleaned["cells"])
    assert (found[0], found[6]) == ("keep-1", "z" * 64)
    assert len(set(found)) == len(found)
    assert ids(clean(of_cells(*cells, minor=5))[0]["cells"]) == found
    assert [(finding.rule, finding.cell) for finding in findings if finding.rule == "LF107"] == [
        ("LF107", 1), ("LF107", None), ("LF107", None)
    ]  # fmt: skip
    assert is_valid(cleaned)


def test_equal_cells_have_different_ids_and_a_changed_cell_changes_only_its_own():
    first = ids(with_ids([code(), code(), code()]))
    second = ids(with_ids([code(), code("other"), code()]))
    assert len(set(first)) == 3
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, True]


def test_ids_of_added_cells_differ_from_existing_ones():
    taken = ids(with_ids([code()]))[0]
    assert ids(with_ids([code(), code("y", id=taken)]))[0] != taken


@pytest.mark.parametrize(
    "metadata, name, language",
    [
        ({}, "python3", "python"),
        ({"kernelspec": None, "language_info": None}, "python3", "python"),
        ({"kernelspec": "python3"}, "python3", "python"),
        ({"kernelspec": {"name": "python3"}}, "python3", "python"),
        ({"kernelspec": {"name": "", "display_name": ""}, "language_info": {"name": ""}}, "python3", "python"),
        ({"language_info": {"name": "python", "file_extension": 3, "codemirror_mode": 3}}, "python3", "python"),
        ({"kernelspec": {"name": "python2", "display_name": "Python 2"}}, "python3", "python"),
        ({"kernelspec": {"name": "conda-env-x-py", "display_name": "x", "language": "python"}}, "python3", "python"),
        ({"kernelspec": {"name": "ir", "display_name": "R"}}, "ir", "R"),
        ({"kernelspec": {"name": "ir"}, "language_info": {"name": "R", "version": "4.1"}}, "ir", "R"),
        ({"language_info": {"name": "R"}}, "ir", "R"),
        ({"kernelspec": {"name": "julia-1.6", "display_name": "Julia 1.6"}}, "julia-1.6", "julia"),
        ({"kernelspec": {"name": "swift", "display_name": "Swift"}}, "swift", "swift"),
        ({"kernelspec": {"name": "foo", "display_name": "Foo", "language": "foolang"}}, "foo", "foolang"),
    ],
)
def test_papermill_accepts_kernel_and_language(tmp_path, metadata, name, language):
    cleaned, _, _ = clean(of_cells(code(), **metadata))
    path = tmp_path / "a.ipynb"
    path.write_text(written(cleaned), encoding="utf-8")
    loaded = load_notebook_node(str(path))
    nbformat.validate(loaded)
    assert (nb_kernel_name(loaded), nb_language(loaded)) == (name, language)
    assert loaded.metadata.kernelspec.language == language
    assert clean(json.loads(written(cleaned)))[2] == []


def test_a_named_kernel_and_its_metadata_stay():
    output = {
        "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python", "env": {}},
        "language_info": {"name": "python", "version": "3.10.1", "codemirror_mode": {"name": "ipython"}},
    }
    cleaned, _, findings = clean(of_cells(minor=5, **output))
    assert (cleaned["metadata"], findings) == (output, [])


def test_python_2_and_kernels_of_another_machine_become_python_3_and_the_finding_names_them():
    old = {"kernelspec": {"name": "python2", "display_name": "Python 2"},
           "language_info": {"name": "python", "version": "2.7.14", "pygments_lexer": "ipython2"}}  # fmt: skip
    cleaned, _, findings = clean(of_cells(minor=5, **old))
    assert cleaned["metadata"] == PYTHON
    assert rules(findings) == ["LF104", "LF105"]
    assert "Python 2" in findings[0].message
    assert findings[0].keeps is Keeps.EQUIVALENT
    own = {
        "kernelspec": {"name": "lab-env", "display_name": "Lab", "language": "python"},
        "language_info": {"name": "python"},
    }
    cleaned, _, findings = clean(of_cells(minor=5, **own))
    assert cleaned["metadata"] == PYTHON
    assert "`lab-env` (Lab)" in findings[0].message


def test_kept_outputs_are_the_same_objects():
    output = {"output_type": "stream", "name": "stdout", "text": "a"}
    cleaned, _, _ = clean(of_cells(code(outputs=[output], metadata={"id": "x"})))
    assert cleaned["cells"][0]["outputs"][0] is output
