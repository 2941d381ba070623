import copy

import pytest

from migration.notebook.findings import Keeps, Notes
from migration.notebook.outputs import clean_outputs

TOKEN = "hf_" + "QzRkWmXvTbLpNcYdGhJsAfEuQzRkWmXvTb"
TABLE = (
    "<div>\n<style scoped>\n    .dataframe tbody tr th { vertical-align: top; }\n</style>\n"
    '<table border="1" class="dataframe">\n  <tbody>\n    <tr><td>{}</td></tr>\n  </tbody>\n</table>\n'
    "<p>1 rows × 1 columns</p>\n</div>"
)


def colab_table(cell="1"):
    return (
        f'\n  <div id="df-1" class="colab-df-container">\n    {TABLE.replace("{}", cell)}\n'
        '    <div class="colab-df-buttons">'
        "<button onclick=\"convertToInteractive('df-1')\"></button><script>\n"
        "google.colab.kernel.invokeFunction('convertToInteractive', [key], {});</script></div>\n  </div>\n"
    )


def with_data(data, metadata=None):
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def cleaned(*outputs):
    before = copy.deepcopy(outputs)
    notes = Notes()
    found = clean_outputs(list(outputs), 3, notes, drops_views=True)
    assert before == outputs
    again = Notes()
    assert clean_outputs(found, 3, again, drops_views=True) is found
    assert again.findings() == []
    return found, notes.findings()


UPLOAD = (
    '\n <input type="file" id="files-1" name="files[]" multiple disabled />\n <output id="result-1">widget</output>\n'
    ' <script src="/nbextensions/google.colab/files.js"></script> '
)
UPLOAD_INLINE = '<input type="file"><script>// Helpers for google.colab Python module.\n(function(scope) {})</script>'


@pytest.mark.parametrize(
    "data, kept, rule",
    [
        ({"text/plain": "a", "application/vnd.google.colaboratory.intrinsic+json": {"type": "string"}},
         {"text/plain": "a"}, "LF120"),
        ({"text/plain": "a", "application/vnd.google.colaboratory.module+javascript": "import x"},
         {"text/plain": "a"}, "LF120"),
        ({"application/vnd.colab-display-data+json": {"isDisplay": True}, "image/png": "aGk="},
         {"image/png": "aGk="}, "LF120"),
        ({"text/plain": "   1", "text/html": colab_table()},
         {"text/plain": "   1", "text/html": TABLE.replace("{}", "1")}, "LF121"),
        ({"text/plain": "x", "text/html": '<div class="colab-df-container">no table</div>'},
         {"text/plain": "x"}, "LF121"),
        ({"text/plain": "<IPython.core.display.HTML object>", "text/html": UPLOAD}, None, "LF121"),
        ({"text/plain": "<IPython.core.display.HTML object>", "text/html": UPLOAD_INLINE}, None, "LF121"),
        ({"text/plain": "<bound method f>", "text/html": "<script>google.colab.files.view('f')</script>"},
         {"text/plain": "<bound method f>"}, "LF121"),
        ({"text/plain": "<IPython.core.display.Javascript object>",
          "application/javascript": "if (!google.colab.kernel.accessAllowed) { return; }"}, None, "LF121"),
        ({"text/plain": "<IPython.core.display.Javascript object>",
          "application/javascript": 'download("download_1f-2", "model.h5", 23)'}, None, "LF121"),
        ({"application/vnd.holoviews_load.v0+json": "if (google.colab.kernel != null) { }",
          "application/javascript": "if (google.colab.kernel != null) { }"}, None, "LF121"),
        ({"text/plain": "100%|██| 3/3", "application/vnd.jupyter.widget-view+json": {"model_id": "a"}},
         {"text/plain": "100%|██| 3/3"}, "LF122"),
        ({"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}, None, "LF122"),
        ({"text/plain": "<google.colab.data_table.DataTable object>", "text/html": TABLE,
          "application/vnd.google.colaboratory.module+javascript": "x"}, {"text/html": TABLE}, "LF120"),
    ],
)  # fmt: skip
def test_colab_only_outputs_are_removed_and_others_stay(data, kept, rule):
    found, findings = cleaned(with_data(data))
    assert [output["data"] for output in found] == ([] if kept is None else [kept])
    assert rule in [finding.rule for finding in findings]
    assert all(finding.cell == 3 and finding.changed for finding in findings)


@pytest.mark.parametrize(
    "data",
    [
        {"text/plain": "1", "text/html": TABLE},
        {"text/html": TABLE.replace("{}", "from google.colab import files; google.colab.kernel")},
        {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>x</b>"},
        {"text/plain": "<IPython.core.display.HTML object>"},
        {"application/javascript": "require.config({})", "text/plain": "x"},
        {"text/html": '<a href="https://colab.research.google.com/x">open</a><script>1</script>'},
        {"application/vnd.plotly.v1+json": {"data": [{"y": [1, 2.5]}]}},
        {"image/svg+xml": "<svg/>"},
        {},
    ],
)
def test_outputs_of_plain_notebooks_are_unchanged(data):
    output = with_data(data, {"needs_background": "light"})
    found, findings = cleaned(output)
    assert found[0] is output
    assert findings == []


def test_charts_that_colab_suggests_are_removed_completely():
    title = '<h4 class="colab-quickchart-section-title">Distributions</h4>\n<style>\n</style>'
    chart = '      <div class="colab-quickchart-chart-with-code" id="chart-1">\n <img src="data:image/png;base64,aGk=">'
    own = with_data({"text/plain": "<Figure size 640x480 with 1 Axes>", "image/png": "aGk="})
    found, findings = cleaned(
        with_data({"text/plain": "<google.colab._quickchart_helpers.SectionTitle at 0x7e>", "text/html": title}),
        with_data({"text/plain": "_df_0['a'].plot(kind='hist')", "text/html": chart}),
        own,
    )
    assert found == [own]
    assert {finding.rule for finding in findings} == {"LF121"}


def test_metadata_of_removed_forms_and_colab_tags_is_removed():
    view = "application/vnd.jupyter.widget-view+json"
    metadata = {view: {"colab": {}}, "text/plain": {"a": 1}, "tags": [], "colab": {"x": 1}, "needs_background": "light"}
    found, findings = cleaned(with_data({view: {}, "text/plain": "x"}, metadata))
    assert found[0]["metadata"] == {"text/plain": {"a": 1}, "needs_background": "light"}
    assert [finding.rule for finding in findings] == ["LF120", "LF122"]


@pytest.mark.parametrize(
    "output",
    [
        {"output_type": "stream", "name": "stdout", "text": f"Your token: {TOKEN}\n"},
        {"output_type": "stream", "name": "stdout", "text": ["é\n"] * 300 + [f"Your token: {TOKEN}\n"]},
        {"output_type": "error", "ename": "E", "evalue": TOKEN, "traceback": ["a", f"\x1b[31m{TOKEN}\x1b[0m"]},
        with_data({"text/plain": repr(TOKEN), "text/html": f"<b>{TOKEN}</b>"}),
        with_data({"application/json": {"a": [1, {"token": TOKEN}]}, "image/png": "aGk="}),
    ],
    ids=["stream", "lines", "error", "text", "json"],
)
def test_secrets_are_masked_and_reported_as_a_manual_step(output):
    found, findings = cleaned(output)
    assert TOKEN not in str(found)
    assert "‹secret›" in str(found)
    assert found[0].keys() == output.keys()
    assert {finding.rule for finding in findings} == {"LF123"}
    for finding in findings:
        assert (finding.keeps, finding.cell, finding.line) == (Keeps.NEEDS_HUMAN, 3, 1)
        assert "revoke" in finding.action
        assert TOKEN not in str(finding)


@pytest.mark.parametrize(
    "query, expires",
    [
        ("X-Amz-Credential=AK" + "IAQ7Z2K9M4X1B8V5N3", True),
        ("a=1&X-Amz-Signature=" + "3408d342b85c852d155d" * 3, True),
        ("a=1&X-Goog-Signature=" + "3408d342b85c852d155d" * 3, True),
        ("a=1&sig=" + "3408d342b85c852d155d" * 3, False),
    ],
)
def test_a_signed_link_that_expires_is_masked_without_a_manual_step(query, expires):
    link = f"https://host.org/f?{query}%2F2021\n" if "Credential" in query else f"https://host.org/f?{query}\n"
    found, findings = cleaned({"output_type": "stream", "name": "stdout", "text": link})
    assert query.rpartition("=")[2] not in found[0]["text"]
    assert [finding.keeps for finding in findings] == [Keeps.EQUIVALENT if expires else Keeps.NEEDS_HUMAN]


def test_a_private_key_over_many_lines_is_masked_in_a_long_list_of_lines():
    letters = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA"
    block = ["-----BEGIN PRIVATE KEY-----\n", *[f"{letters * 2}\n"] * 3, "-----END PRIVATE KEY-----\n"]
    output = {"output_type": "stream", "name": "stdout", "text": ["é\n"] * 300 + block}
    assert letters not in str(cleaned(output)[0])
