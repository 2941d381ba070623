import pytest

from migration.analysis.facts import NotebookFacts, collect_facts
from migration.python.source import CellSource
from migration.rules import colab_api, colab_prose, prose
from migration.rules.colab_prose import SIGN_IN_MESSAGE, TABLE_MESSAGE, comments_about_colab
from migration.rules.prose import headings, names_badge
from migration.rules.rewriting import rewrite

RULES = (*prose.RULES, *colab_prose.RULES)
_URL = "https://colab.research.google.com/github/a/b/blob/main/n(1).ipynb"
_IMAGE = "https://colab.research.google.com/assets/colab-badge.svg"
_BADGE = f"[![Open In Colab]({_IMAGE})]({_URL})"
_HTML = f'<a href="{_URL}" target="_parent"><img src="{_IMAGE}" alt="Open In Colab"/></a>'


def _rewrite(text):
    new, found = rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=NotebookFacts())
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        (_BADGE, ""),
        (_HTML, ""),
        (f"# Title\n\n{_BADGE}\n\nText", "# Title\n\n\nText"),
        (f'[<img src="{_IMAGE}" alt="Open In Colab"/>]({_URL})\nText', "Text"),
        (f"{_HTML}\n\n# Title", "# Title"),
        (f'<a href="{_URL}">\n<img src="colab_logo_32px.png" />\nRun in Google Colab</a>\n\n# Title', "# Title"),
        (f"# Title\n{_BADGE}", "# Title"),
        (f"{_BADGE} [![nbviewer](a.svg)](b)", "[![nbviewer](a.svg)](b)"),
        (f"[b](c) {_BADGE}", "[b](c)"),
        (f"- {_BADGE}\n- other", "- other"),
        (f"![]({_IMAGE})\nText", "Text"),
        (f"[b](c)\n{_BADGE}  \n**Data**", "[b](c)  \n**Data**"),
        (f"[![Open in Colab]({_IMAGE})](https://example.org/redirect)\nText", "Text"),
        (f'<a href="https://githubtocolab.com/a/b/blob/main/c.ipynb"><img src="{_IMAGE}"/></a>\n\nText', "Text"),
    ],
)
def test_a_badge_on_a_line_of_badges_is_removed(before, after):
    new, found = _rewrite(before)
    assert new == after
    assert {finding.rule for finding in found} == {"LF701"}


@pytest.mark.parametrize(
    "text",
    [
        f"All on a free TPU {_BADGE}.",
        f"# How to train {_BADGE}",
        f"**Links:** [b](c) {_BADGE}",
        f"| a | {_BADGE} |",
        f"{_BADGE} | [b](c)",
        f"- Latest (V2): {_BADGE}",
        f"Run it here:\n\n{_BADGE}",
        f"<table><td>{_HTML}</td></table>",
        f"<td>\n{_HTML}\n</td>",
        f"<p>{_HTML}",
        f"{_BADGE}\nto execute or view this notebook on\n[GitHub](a)",
    ],
)
def test_a_badge_in_a_text_or_in_html_stays_and_is_reported(text):
    new, found = _rewrite(text)
    assert new is text
    assert [(finding.rule, finding.changed) for finding in found] == [("LF701", False)]


def test_a_text_that_introduces_a_badge_keeps_it():
    for text in ("You can run it here or in Google Colab.", "## Open in Colab"):
        new, found = _rewrite(f"{text}\n\n{_BADGE}\n\nMore")
        assert new == f"{text}\n\n{_BADGE}\n\nMore"
        assert ("LF701", False) in [(finding.rule, finding.changed) for finding in found]


@pytest.mark.parametrize(
    "text",
    [
        f'<td>\n  <a href="{_URL}">\n  <img src="colab_logo_32px.png" />\n  Run in Google Colab</a>\n</td>',
        f'<td>\n  <a href="{_URL}"><b>\n  <img src="colab_logo_32px.png" />\n  Run in Google Colab</b></a>\n</td>',
    ],
)
def test_a_badge_with_a_text_in_html_stays_and_both_are_reported(text):
    new, found = _rewrite(text)
    assert new is text
    assert [(finding.rule, finding.changed) for finding in found] == [("LF701", False), ("LF704", False)]


@pytest.mark.parametrize("name", ["ColabFold_Logo.png", "logo/colabfold.png", "colaboradores_logo.png"])
def test_a_logo_with_a_longer_name_stays(name):
    text = f'<img src="https://a.example/{name}">\n\n[Colab](https://colab.research.google.com) is a service.'
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "Click the icon to run it in Colab.",
        "Use the badge below.",
        "Click on this badge.",
        'Please click the "Open in Colab" button.',
        "Click *Open in Colab* above.",
    ],
)
def test_a_badge_that_a_text_names_stays(text):
    cells = [{"cell_type": "markdown", "metadata": {}, "source": text}]
    facts = NotebookFacts(names_badge=names_badge(cells))
    new, (finding,) = rewrite(CellSource(_BADGE), cell_type="markdown", rules=prose.RULES, facts=facts)
    assert (new.text, finding.rule, finding.changed) == (_BADGE, "LF701", False)


@pytest.mark.parametrize(
    "text", ["Badges are nice in Colab.", "Click on the explorer icon *{x}* in the Colab toolbar."]
)
def test_other_texts_about_badges_and_icons_name_no_badge(text):
    assert not names_badge([{"cell_type": "markdown", "metadata": {}, "source": text}])


@pytest.mark.parametrize(
    "text",
    [
        "Go to https://colab.research.google.com/, and log in.",
        "Allow pop-ups of colab.research.google.com.",
        "[Colab](https://colab.research.google.com) is a service.",
        "[it](https://colab.research.google.com/notebooks/io.ipynb#x) says",
        "Visit https://colab.research.google.com/notebooks/io.ipynb.",
    ],
)
def test_the_pages_of_colab_itself_are_not_reported(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        f"See [this]({_URL}).",
        f'See <a href="{_URL}">this</a>.',
        f"See {_URL}.",
        f"[Run it in Colab]({_URL})",
        "A [Colab Notebook](https://colab.research.google.com/drive/1aBcDeFgHiJkLmNoPqRsTuVw) that trains",
        f"See it:\n\n[![A plant](plant.png)]({_URL})",
        f'<a href="{_URL}"><img src="plant.png"></a>',
        "[there](https://colab.research.google.com/drive/1aBcDeFgHiJkLmNoPqRsTuVw#scrollTo=b)",
    ],
)
def test_links_to_colab_stay_and_are_reported(text):
    new, found = _rewrite(text)
    assert new is text
    assert {finding.rule for finding in found if not finding.changed} == {"LF702"}


def test_a_badge_in_an_open_link_is_reported_once():
    badge = f'<a href="{_URL}"><img src="https://colab.research.google.com/assets/colab-badge.svg" alt="Colab"/>'
    _, found = _rewrite(f"<table>{badge}")
    assert [finding.rule for finding in found] == ["LF701"]
    _, found = _rewrite("<table>" + badge.replace(">", " target='_blank'>\n", 1))
    assert [finding.rule for finding in found] == ["LF701"]
    _, found = _rewrite(f"<table>{badge} [b]({_URL})")
    assert [finding.rule for finding in found] == ["LF701", "LF702"]


@pytest.mark.parametrize("text", ["> [Set-up](#scrollTo=abc_1) and `#scrollTo`", "[c](c.ipynb#scrollTo=b)"])
def test_links_to_unknown_cells_stay(text):
    assert _rewrite(text)[0] is text


def test_a_link_to_a_cell_without_heading_leads_to_the_one_above():
    cells = [
        {"cell_type": "markdown", "metadata": {"id": "a"}, "source": "# Title\n## Results"},
        {"cell_type": "code", "metadata": {"id": "b"}, "source": "# no heading"},
    ]
    facts = NotebookFacts(headings=headings(cells))
    text = "[**there**](#scrollTo=b&line=2) and [elsewhere](#scrollTo=x)"
    new, found = rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=facts)
    assert new.text == "[**there**](#Results) and [elsewhere](#scrollTo=x)"
    assert [(finding.rule, finding.changed) for finding in found] == [("LF703", True), ("LF703", False)]


def test_a_link_to_a_heading_that_is_not_the_first_with_its_text_stays():
    texts = {"a": "# Models", "b": "## Load", "c": "# Results", "d": "## Load", "e": "no heading"}
    cells = [{"cell_type": "markdown", "metadata": {"id": name}, "source": text} for name, text in texts.items()]
    facts = NotebookFacts(headings=headings(cells))
    text = " ".join(f"[{name}](#scrollTo={name})" for name in texts)
    new, found = rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=facts)
    assert new.text == "[a](#Models) [b](#Load) [c](#Results) [d](#scrollTo=d) [e](#scrollTo=e)"
    assert [bool(finding.action) for finding in found] == [False, False, False, True, True]


@pytest.mark.parametrize(
    "text, heading, after",
    [
        ("[Set up](#scrollTo=abc)", "# Title\n## **Set up**", "[Set up](#Set-up)"),
        ("[there](#scrollTo=abc&line=1)", "Text\n## Model 1: LightGBM #\n## b", "[there](#Model-1:-LightGBM)"),
        ("[there](#scrollTo=abc)", "# A [b] <font color='green'>`C`</font>", "[there](#A-[b]-C)"),
        ("[there](#scrollTo=abc)", "## [a](b)", "[there](#scrollTo=abc)"),
        ("[there](#scrollTo=abc)", "no heading", "[there](#scrollTo=abc)"),
        ("[there](#scrollTo=other)", "# Title", "[there](#scrollTo=other)"),
    ],
)
def test_a_link_to_a_cell_becomes_one_to_its_heading(text, heading, after):
    cell = {"cell_type": "markdown", "metadata": {"id": "abc"}, "source": heading}
    facts = NotebookFacts(headings=headings([cell]))
    assert rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=facts)[0].text == after


@pytest.mark.parametrize(
    "text, rule",
    [
        ("Choose *Runtime > Change runtime type* first.", "LF704"),
        ("Choose _Runtime_ > _Run all_.", "LF704"),
        ("The files are in your Google Drive.", "LF704"),
        ("# A demonstration (Colab-ready)", "LF704"),
        ("No, everything happens in the cloud on Google Colab.", "LF704"),
        ("`Edit` -> `Notebook settings` -> `Hardware accelerator`", "LF704"),
        ("Google Colab: go to colab.research.google.com and upload it.", "LF704"),
        ("Now mount your Google Drive.", "LF704"),
        ("By mounting your gdrive, you keep the data.", "LF704"),
        ("# Mount GoogleDrive", "LF704"),
        ("Unmount your drive and flush it.", "LF704"),
        ("Wait until the drive is mounted.", "LF704"),
        ("Do this every time you restart Colab.", "LF704"),
        ("Add the key in the Secrets panel.", "LF704"),
        ('Click on the "Folder" icon, then on "Copy Path".', "LF704"),
        ("Right-click the file and copy path.", "LF704"),
        ("Click the key icon.", "LF704"),
        ("Files are not persistent and deleted when the session is closed.", "LF704"),
        ("You will be prompted to enter an authorization code.", "LF704"),
        ("Choose **File &rarr; Save a copy in Drive**.", "LF704"),
        ("First make a copy of this notebook in your Google Drive.", "LF704"),
        ("Then the session restarts by itself.", "LF704"),
        ("Restart the session after the installation.", "LF704"),
        ("`document.querySelector('colab-toolbar-button#connect').click()`", "LF704"),
        ("Google Colaboratory上にアップロードします", "LF704"),
        ("Colab에서 GPU를 사용합니다.", "LF704"),
        ("Abra el cuaderno en Google Colab.", "LF704"),
    ],
)
def test_text_about_colab_is_reported_and_kept(text, rule):
    new, found = _rewrite(text)
    assert new is text
    assert [finding.rule for finding in found] == [rule]
    assert found[0].action


def test_text_about_colab_next_to_a_link_to_colab_is_reported_once():
    text = "Run it in Colab.\n\nIt is on [Colab](https://colab.research.google.com), in Colab."
    found = _rewrite(text)[1]
    assert [(finding.rule, finding.line) for finding in found if finding.rule == "LF704"] == [("LF704", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "Written for the runtime of a program, 3 files.",
        "Read colab/a.md, `IN_COLAB`, my-colab and me@colab.org.",
        f"```markdown\n{_BADGE}\n```",
        f"`{_BADGE}`",
        "",
        "[unclosed](https://example.org/colab.research",
        "<a href=",
    ],
)
def test_other_text_is_unchanged(text):
    new, found = _rewrite(text)
    assert new is text
    assert found == []


@pytest.mark.parametrize("index, stays", [(0, False), (2, True)])
def test_a_badge_below_the_first_code_cell_stays(index, stays):
    """It may open another notebook. The second migration does the same."""
    source = CellSource(f"## Next\n{_BADGE}", index=index)
    facts = collect_facts([CellSource("a", index=1)])
    new, (finding,) = rewrite(source, cell_type="markdown", rules=prose.RULES, facts=facts)
    assert new.text == (source.text if stays else "## Next")
    assert finding.changed is not stays


def _comments(source, facts, new=None):
    return list(comments_about_colab(source, new or source, facts))


def test_a_comment_about_the_menu_of_colab_is_reported():
    (found,) = _comments(
        CellSource("a = 1\n# NOTE: set Runtime -> Change runtime type to TPU\n# at runtime"), NotebookFacts()
    )
    assert (found.rule, found.line) == ("LF704", 2)


@pytest.mark.parametrize(
    "text, lines",
    [
        ("print('Select the Runtime > \"Change runtime type\" menu')", [1]),
        ("raise ValueError('set the key as a Colab secret')", [1]),
        ("a()\nprint('Click: Runtime → Restart session')\nprint('Please restart the runtime')", [2, 3]),
        ("# drives: visible in blue", []),
        ("# Load the file (make sure you've uploaded it in the left panel)\n# the left panel shows the loss", [1]),
        ("# See https://colab.research.google.com/github/a/b/blob/main/c.ipynb\nx = 2", [1]),
        ('def f():\n    """Order: Colab secret, environment.\n\n    x\n    """', [2]),
        ("print(f'{runtime / 60} minutes')", []),
        ("import tools as colab\nf(x, colab)\nd = {'a': colab}\nprint(f'{d, colab}')", []),
        ("print('런타임 > 런타임 유형 변경')\n# 런타임을 다시 시작하세요", [1, 2]),
        ("# 런타임 시에 런타임 에러\n# ランタイム時に解決される", []),
        ("# at runtime\nassert runtime > 0, 'no runtime type'", []),
    ],
)
def test_a_string_about_the_menu_of_colab_is_reported(text, lines):
    source = CellSource(text)
    assert [found.line for found in _comments(source, NotebookFacts())] == lines
    assert _comments(source, NotebookFacts(), CellSource("a = 1")) == []


def test_a_message_about_a_removed_mount_is_reported():
    text = "from google.colab import drive\ndrive.mount('/content/drive')\nprint('Google Drive mounted')"
    source = CellSource(text)
    (found,) = _comments(source, collect_facts([source]))
    assert (found.line, found.message) == (3, SIGN_IN_MESSAGE)
    assert _comments(CellSource("print('Google Drive mounted')"), NotebookFacts()) == []


def test_an_import_that_is_a_comment_is_reported_by_one_rule():
    assert _comments(CellSource("# from google.colab import output  # Needed for Google Colab"), NotebookFacts()) == []


def test_a_text_about_a_restart_names_the_added_cells():
    (found,) = _comments(CellSource("# Runtime > Restart session"), NotebookFacts())
    assert "run the added cells at the top again" in found.action


@pytest.mark.parametrize(
    "text, lines",
    [
        (
            "# Checks whether this runs on Google Colab\ntry:\n    import google.colab\nexcept ImportError:\n    a()",
            [1],
        ),
        ("try:\n    # are we on Colab?\n    import google.colab\n    !pip install a\nexcept:\n    pass", [2]),
        ("# if on Colab\nimport sys\nif 'google.colab' in sys.modules:\n    !pip install a", [1]),
        ("# Colab-only: b\nif 'google.colab' in sys.modules:\n    !pip install a", [1]),
        ("# if on Colab\nx = 1\nif 'google.colab' in sys.modules:\n    # the Colab way\n    !pip install a", []),
    ],
)
def test_a_comment_that_describes_a_removed_test_is_reported(text, lines):
    source = CellSource(text)
    found = _comments(source, collect_facts([source]))
    found = [finding for finding in found if finding.message == colab_prose.TEST_MESSAGE]
    assert [finding.line for finding in found] == lines


@pytest.mark.parametrize(
    "comment, reported",
    [('# For Colab, add to your "Secrets" (key icon at the left)', True), ("# for the score", False)],
)
def test_a_comment_about_colab_below_a_removed_test_is_reported(comment, reported):
    text = "try:\n    from google.colab import userdata\n    a = 1\nexcept:\n    a = 0\n\n"
    source = CellSource(f"{text}{comment}\nb = userdata.get('B')")
    assert [finding.line for finding in _comments(source, collect_facts([source]))] == [7] * reported


def test_a_comment_that_is_removed_is_not_reported():
    text = "from google.colab import drive\ndrive.mount('/content/drive')  # authorize access to your drive\na = 1"
    source = CellSource(text)
    facts = collect_facts([source])
    assert [finding.line for finding in _comments(source, facts)] == [2]
    assert _comments(source, facts, rewrite(source, cell_type="code", rules=colab_api.RULES, facts=facts)[0]) == []


@pytest.mark.parametrize(
    "before, after, lines",
    [
        ("# we ensure 2.X\n%tensorflow_version 2.x\n\na()", "# we ensure 2.X\n\na()", [1]),
        ("a()\n# we ensure 2.X\n%tensorflow_version 2.x", "a()\n# we ensure 2.X", [2]),
        ("# one\n# two\n%tensorflow_version 2.x\n%load_ext b\n\na()", "# one\n# two\n\na()", [2]),
        ("# then a()\n%tensorflow_version 2.x\na()", "# then a()\na()", []),
        ("# apart\n\n%tensorflow_version 2.x\n\na()", "# apart\n\n\na()", []),
        ("# we\n%tensorflow_version 2.x\n\na()", "a()", []),
        ("# kept\n# a comment\n\na()", "# kept\n\na()", []),
        ("%%bash\n# kept\nls\n\na", "%%bash\n# kept\n\na", []),
    ],
)
def test_a_comment_above_a_removed_line_that_describes_nothing_else_is_reported(before, after, lines):
    found = _comments(CellSource(before), NotebookFacts(), CellSource(after))
    assert [(finding.line, finding.message) for finding in found] == [
        (line, colab_prose.REMOVED_MESSAGE) for line in lines
    ]


@pytest.mark.parametrize("index, gone", [(1, True), (2, False)])
def test_text_directly_above_a_removed_test_names_the_test(index, gone):
    text = "The cell checks if the notebook is run on Colab.\nMount your drive."
    facts = collect_facts([CellSource("if 'google.colab' in sys.modules:\n    !pip install a", index=index)])
    _, found = rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=facts)
    assert [finding.message == colab_prose.TEST_MESSAGE for finding in found] == [gone, False]


def test_a_form_text_about_colab_is_reported_with_its_line():
    text = "a = 1\n#@markdown This installs it on the Colab\n#@markdown notebook in the cloud.\n#@markdown Use it."
    assert [(found.rule, found.line, bool(found.action)) for found in _comments(CellSource(text), NotebookFacts())] == [
        ("LF704", 2, True)
    ]
    assert not list(
        _comments(
            CellSource("#@title Setup runtime or mount the drive\nb = '#@markdown Mount the drive'"), NotebookFacts()
        )
    )


@pytest.mark.parametrize("text", ["#@title Hit `Runtime` -> `Run all`", "# click *Runtime* and press *Run all*"])
def test_running_all_cells_by_the_menu_is_reported(text):
    (found,) = _comments(CellSource(text), NotebookFacts())
    assert (found.rule, found.line) == ("LF704", 1)
    assert {finding.rule for finding in _rewrite(text.lstrip("# "))[1]} == {"LF704"}


_MOUNT = "from google.colab import drive\ndrive.mount('/content/drive')"


@pytest.mark.parametrize(
    "text, in_comment",
    [
        ("Run the cell, click the link, and sign in", True),
        ("Paste the code that Google gives to you", True),
        ("It will prompt you", True),
        ("Allow access to it", True),
        ("実行すると，認証が求められる", True),
        ("运行后请登录谷歌账号", True),
        ("구글 계정에 로그인하세요", True),
        ("Debes autorizar el acceso", True),
        ("Entre na sua conta do Google", True),
        ("Next, connect to your drive", False),
        ("ドライブをマウントします", False),
        ("Google Driveへの接続", False),
        ("挂载云端硬盘", False),
        ("드라이브를 마운트합니다", False),
        ("Montar la unidad", False),
    ],
)
def test_a_text_at_a_removed_mount_that_describes_it_is_reported(text, in_comment):
    facts = collect_facts([CellSource(_MOUNT, index=1)])
    for index, expected in ((0, [SIGN_IN_MESSAGE]), (1, [])):
        _, found = rewrite(CellSource(text, index=index), cell_type="markdown", rules=RULES, facts=facts)
        assert [finding.message for finding in found] == expected
    for cell, lines in ((f"a()\n# {text}\n{_MOUNT}", [2]), (f"{_MOUNT}\n# {text}", []), (f"# {text}\na()", [])):
        source = CellSource(cell)
        found = list(_comments(source, collect_facts([source])))
        assert [finding.line for finding in found] == lines * in_comment


def test_a_text_about_the_interactive_table_is_reported_where_the_notebook_shows_it():
    shows = CellSource("from google.colab import data_table\ndata_table.enable_dataframe_formatter()", index=1)
    for cells, messages in (([shows], [TABLE_MESSAGE]), ([CellSource("x = 1", index=1)], [])):
        text = CellSource("Click `Filter` at the interactive dataframe.")
        _, found = rewrite(text, cell_type="markdown", rules=RULES, facts=collect_facts(cells))
        assert [finding.message for finding in found] == messages


@pytest.mark.parametrize("text", ["Open the gradio.live link", "Paste the values below", "Log in to Kaggle"])
def test_a_text_about_another_service_is_not_about_the_mount(text):
    facts = collect_facts([CellSource(_MOUNT, index=1)])
    assert rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=facts)[1] == []


@pytest.mark.parametrize(
    "text, is_found",
    [
        ("Start the notebook: https://colab.research.google.com", False),
        ("Connect your colab session to a GPU", True),
        ("In this Colab, we train a model.", True),
        ("# Training (Google Colab)", True),
        ("谷歌Colab環境", True),
        ("It expects a `TOKEN` secret in this notebook's settings.", True),
        ("It needs `%tensorflow_version 1.x`.", True),
        ("Entorno de ejecución → Cambiar tipo", True),
        ("菜单 → 运行时 → 更改运行时类型", True),
    ],
)
def test_texts_that_name_colab_or_its_menu_are_reported(text, is_found):
    _, found = rewrite(CellSource(text), cell_type="markdown", rules=RULES, facts=NotebookFacts())
    assert ("LF704" in {finding.rule for finding in found}) is is_found


@pytest.mark.parametrize(
    "text, lines",
    [
        ("a = 1  # fast on Colab", [1]),
        ("# the default of Google Colab\na()", [1]),
        ("print('exists in Colab. Updating')", [1]),
        ("mode = 'colab'\nfrom x import colab\ncolab.run(mode)", []),
        ("# see colab.py and github.com/a/colab", []),
    ],
)
def test_comments_and_messages_that_name_colab_are_reported(text, lines):
    assert [finding.line for finding in _comments(CellSource(text), NotebookFacts())] == lines
