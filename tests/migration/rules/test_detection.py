"""The branch that stays in place of a test for Colab."""

import pytest

from migration.analysis.facts import collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules.rewriting import rewrite
from tests.migration.rules.branches import RULES, rewritten, rewritten_one


@pytest.mark.parametrize(
    "before, after",
    [
        ("if ASK:\n    a()\nelse:\n    b()\nc()", "b()\nc()"),
        ("if not ASK:\n    a()\nelse:\n    b()\n", "a()\n"),
        ("x = 1\nif ASK:\n    print(1)\n", "x = 1\n"),
        (
            "if ASK:\n    a()\nelif k:\n    b()\nelse:\n    c()",
            "if k:\n    b()\nelse:\n    c()",
        ),
        (
            "if k:\n    a()\nelif ASK:\n    b()\nelse:\n    c()",
            "if k:\n    a()\nelse:\n    c()",
        ),
        ("if k:\n    a()\nelif ASK:\n    print(1)\nc()", "if k:\n    a()\nc()"),
        ("if k:\n    a()\nelif not os.getenv('COLAB_GPU'):\n    b()\nelse:\n    c()", "if k:\n    a()\nelse:\n    b()"),
        ("if 'COLAB_GPU' in os.environ: a(); b()\nelse: c(); d()  # e", "c(); d()  # e"),
        ("def f():\n    if ASK:\n        print(1)", "def f():\n    pass"),
        ("for x in y:\n  if ASK:\n    print(1)\n  b()\n", "for x in y:\n  b()\n"),
        # Two branches of one suite go one after the other, so that it is not left empty.
        (
            "def f():\n    if ASK:\n        print(1)\n    if ASK: print(2)\n",
            "def f():\n    pass\n",
        ),
        ("if ASK:\n    if k:\n        a()\nelse:\n    if k:\n        b()", "if k:\n    b()"),
        ("if ASK:\n    print(1)", ""),
        (
            "%%capture\nif ASK:\n    output.clear()",
            "%%capture",
        ),
        ("if ASK:\n    print(1)\nelse:\n    pass  # no\nb()", "b()"),
        ("\tif ASK:\n\t\ta()\n\telse:\n\t\tb()", "\tb()"),
        # What stands inside a string does not move, commands and comments do.
        (
            "if not ASK:\n    # why\n    t = '''a\n      b\n    c'''\n    !pip install a \\\n      b\n",
            "# why\nt = '''a\n      b\n    c'''\n!pip install a \\\n  b\n",
        ),
        (
            "if ASK:\n    a()\n    # of Colab\n\n# of here\nelse:\n    b()\n    # last\n\n# after\nc()",
            "# of Colab\n# of here\nb()\n# last\n\n# after\nc()",
        ),
        ("# On Colab:\nif ASK:\n    print(1)\nb()", "# On Colab:\nb()"),
        # The author's comments stay, except commands that are commented out and that no comment describes.
        (
            "if ASK:\n    print(1)\n    # Or the old one:\n    # !ls\n    # %cd x\nb()",
            "# Or the old one:\n# !ls\n# %cd x\nb()",
        ),
        (
            "def f():\n  if ASK:\n    # of Colab\n    print(1)\n    # !ls\n    # more\n  else:\n    # of here\n    b()",
            "def f():\n  # of Colab\n  # On Colab: more\n  # of here\n  b()",
        ),
        ("a()\nif ASK:\n    # of Colab\n    print(1)  # no\n    # more\nb()", "a()\n# of Colab\n# more\nb()"),
        ("if not ASK:\n    a()\nelse:\n    # of Colab\n    print(1)\n\nb()", "a()\n# of Colab\n\nb()"),
        (
            "if k:\n    a()\nelif not ASK:\n    b()\nelse:\n    # of Colab\n    print(1)",
            "if k:\n    a()\nelse:\n    b()\n# of Colab",
        ),
        ("for x in y:\n    if ASK:\n        # of Colab\n        print(1)", "for x in y:\n    # of Colab\n    pass"),
        ("# Two lines,\n# one of Colab\nif ASK:\n    print(1)", "# Two lines,\n# one of Colab"),
        ("#@title On Colab\nif ASK:\n    print(1)", "#@title On Colab"),
        ("%%time\n# On Colab\nif ASK:\n    print(1)\n", "%%time\n# On Colab\n"),
        (
            "x = ü('é'); y = 1\nif ASK:\n    é = 'ü'\nelse:\n    é = 'ß'",
            "x = ü('é'); y = 1\né = 'ß'",
        ),
    ],
)
def test_the_local_branch_is_kept(before, after):
    new, found = rewritten_one(before)
    assert new == after
    assert {finding.rule for finding in found} == {"LF301"}
    assert all(finding.changed for finding in found)


@pytest.mark.parametrize(
    "before, after",
    [
        ("x = {'a': 2 if ASK else 8}", "x = {'a': 8}"),
        ("x = 1 + ('a' if not ASK and k else 'b')", "x = 1 + ('a' if k else 'b')"),
        ("y = 'a' if k else 'c' if ASK else 'd'", "y = 'a' if k else 'd'"),
        ("x = (1 if ASK else\n  2 +\n  3)", "x = ((2 +\n  3))"),
        ("x = (1 if ASK  # why\n     else 2)", "x = (1 if False  # why\n     else 2)"),
        ("root = '/content' if ASK else '~/x'", "root = '/content'"),
        ("root = pathlib.Path('/content/a') if ASK or k else here()", "root = pathlib.Path('/content/a')"),
        ("root = '/content/a' if ASK else './a'", "root = './a'"),
        ("os.system('pip install a') if ASK else None", "os.system('pip install a')"),
        ("f(x if ASK else load('a'), [2 for _ in y if ASK])", "f(load('a'), [2 for _ in y if False])"),
        ("x = 1 if ASK else exit()", "x = 1"),
        ("x = sys.exit('Colab only') if not ASK else 1", "x = 1"),
        ("x = [1 if ASK else exit(), 2 if ASK else 3]", "x = [1, 3]"),
        ("f = lambda b:'a'if ASK else b", "f = lambda b:b"),
        ("def f(b):\n    return'a'if ASK else b", "def f(b):\n    return b"),
        ("def f(b):\n    return'a'if ASK else 'b'", "def f(b):\n    return'b'"),
        ("x = [a if not ASK else'b'for a in y]", "x = [a for a in y]"),
        ('f\'{1 if "google.colab" in sys.modules else 2} {f"{k}"}\'', "f'{2} {f\"{k}\"}'"),
        ("f'{1 if \"google.colab\" in sys.modules else {k}} é'", "f'{ {k}} é'"),
    ],
)
def test_a_conditional_expression_is_decided_as_a_statement_is(before, after):
    new, found = rewritten_one(before)
    assert new == after
    assert {finding.rule for finding in found} <= {"LF301", "LF303", "LF305", "LF306"}


def test_a_flag_set_by_hand_leaves_the_folders_of_colab():
    root = "root = '/content' if COLAB else '~/x'"
    new, _ = rewritten("COLAB = True", root, root.replace("COLAB else", "(COLAB) else"))
    assert new == ["COLAB = False", "root = '/content'", "root = '/content'"]


@pytest.mark.parametrize(
    "before, after",
    [
        ("try:\n    import google.colab\n    A = 1\nexcept ImportError:\n    A = 2\n", "A = 2\n"),
        ("try:\n  from google.colab import files\n  files.view(x)\nexcept:\n  pass\ny()", "y()"),
        ("try:\n  from google.colab import files\nexcept ImportError:\n  a()\nelse:\n  b()", "a()"),
        (
            "try:\n    import json\n    import google.colab\n    b()\nexcept Exception:\n    # no\n    a()",
            "import json\n# no\na()",
        ),
        ("try:\n    import google.colab\n    # of Colab\nexcept:\n    pass\nb()", "# of Colab\nb()"),
        ("try: import google.colab\nexcept (ValueError, ImportError): a()", "a()"),
        (
            "try:\n  try:\n    import google.colab\n  except ImportError:\n    raise\n  b()\nexcept Exception:\n  a()",
            "a()",
        ),
        ("try:\n  try: import google.colab\n  except: raise A('no')\n  b()\nexcept A: a()", "a()"),
        ("try:\n  try: import google.colab\n  except ImportError as e: raise e\nexcept ImportError: a()", "a()"),
        ("try:\n  try: import google.colab\n  except KeyError: c()\n  b()\nexcept ImportError: a()", "a()"),
        ("try:\n    %tensorflow_version 2.x\nexcept Exception:\n    pass\nb()", "b()"),
        # Something may fail before the import does, the handler looks at the error, or a final block follows.
        (
            "try:\n a()\n import google.colab\n x = 1\nexcept ImportError:\n c()\nd()",
            'try:\n a()\n raise ModuleNotFoundError("not available on this machine")\nexcept ImportError:\n c()\nd()',
        ),
        (
            "try:\n  import google.colab\nexcept ImportError as e:\n  print(e)",
            'try:\n  raise ModuleNotFoundError("not available on this machine")\nexcept ImportError as e:\n  print(e)',
        ),
        (
            "try:\n  import google.colab\n  # The address\n  print(1)\nexcept ImportError as e:\n  print(e)",
            'try:\n  raise ModuleNotFoundError("not available on this machine")\n  # On Colab: The address\n'
            "except ImportError as e:\n  print(e)",
        ),
        (
            "try:\n import google.colab\nexcept ImportError: a()\nfinally: b()",
            'try:\n raise ModuleNotFoundError("not available on this machine")\nexcept ImportError: a()\nfinally: b()',
        ),
    ],
)
def test_the_handler_of_a_guarded_import_is_kept(before, after):
    new, found = rewritten_one(before)
    assert new == after
    assert {finding.rule for finding in found} == {"LF302"}
    named = "`%tensorflow_version`" if "tensorflow" in before else "`google.colab`"
    assert all(finding.message.startswith(named) for finding in found)


def test_a_finding_says_what_replaces_a_try():
    before = "try:\n    import os\n    import google.colab\nexcept ImportError:\n    "
    new, (found,) = rewritten_one(f"{before}pass\na()")
    assert (new, "the lines above its import replace" in found.message) == ("import os\na()", True)
    new, (found,) = rewritten_one(f"{before}b()\na()")
    assert (new, "the handler replaces" in found.message) == ("import os\nb()\na()", True)
    new, (found,) = rewritten_one("try:\n    b()\n    import google.colab\n    c()\nexcept ImportError:\n    pass")
    assert ("    b()\n    raise ModuleNotFoundError" in new, "an error" in found.message) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import google.colab\nexcept ValueError:\n    a()",
        "try:\n    import google.colab\nexcept ImportError:\n    raise",
        "try:\n    import google.colab\nfinally:\n    a()",
        "try:\n    from google import genai\nexcept ImportError:\n    a()",
        "try:\n  try: import google.colab\n  except: raise A('no')\nexcept A: a()\nfinally: b()",
        "try:\n  try: import google.colab\n  except: raise A('no')\nexcept B: a()",
        # The handler installs what is missing, so that it does not ask about Colab.
        "if os.path.exists('/x') or train():\n    a()",
        "if 'google.colab' in text:\n    a()",
        "def f(IN_COLAB):\n    if IN_COLAB:\n        a()",
        "while x:\n    pass",
        "",
    ],
)
def test_conditions_that_do_not_detect_colab_are_unchanged(text):
    assert rewritten_one(text) == (text, [])


@pytest.mark.parametrize(
    "before, after",
    [
        (
            "if find_spec('a') is None or ('COLAB_' in ''.join(os.environ)):\n    print(1)",
            "if find_spec('a') is None:\n    print(1)",
        ),
        ("if (ASK) or (a):\n    print(1)", "if a:\n    print(1)"),
        ("if a and not ASK and b: c()", "if a and b: c()"),
        ("while go() and not ASK: a()", "while go(): a()"),
        ("x = a or ASK", "x = a or False"),
        ("if a() and ASK: b()", "if a() and False: b()"),
        ("x = ASK", "x = False"),
        ("x = not 'google.colab' in str(get_ipython())", "x = True"),
        ("print(os.environ.get('COLAB_GPU', 'none'))", "print('none')"),
        ("IS_COLAB = True", "IS_COLAB = False"),
        ("assert ASK, 'Colab only'\na()", "a()"),
        ("f(x=ASK)\n", "f(x=False)\n"),
    ],
)
def test_the_detection_is_replaced_by_its_result(before, after):
    new, found = rewritten_one(before)
    assert new == after
    assert {finding.rule for finding in found} <= {"LF305", "LF306"}


def test_a_flag_that_the_author_has_set_for_a_local_run_stays():
    cells = ["using_colab = False", "if using_colab:\n    !pip install a\nelse:\n    b()"]
    assert rewritten(*cells)[0] == [cells[0], cells[1]]


def test_flags_are_known_in_every_cell():
    new, _ = rewritten(
        "try:\n    import google.colab\n    HOSTED = IN_COLAB = True\nexcept ImportError:\n    IN_COLAB = False",
        "if IN_COLAB:\n    a()\nelse:\n    b()",
        "f(clean=IN_COLAB)",
    )
    assert new == [
        "IN_COLAB = False",
        "b()",
        "f(clean=IN_COLAB)",
    ]


def test_a_colab_branch_is_kept_if_its_names_are_used():
    new, found = rewritten("if ASK:\n    base = size()\n    n = 1\nelse:\n    print('no')", "open(base)")
    assert new == ["base = size()\nn = 1", "open(base)"]
    assert [(finding.rule, "`base`" in finding.message) for finding in found] == [("LF303", True)]
    assert "`print('no')`" in found[0].message


MAE = """if ASK:
    print('on Colab')
    !git clone https://example.org/mae.git
    sys.path.append('./mae')
else:
    sys.path.append('..')"""


@pytest.mark.parametrize(
    "before, after",
    [
        ("if ASK:\n    !pip install a\nb()", "!pip install a\nb()"),
        (
            "# On Colab:\nif ASK:\n    !pip install a\n\n# Elsewhere:\nelse:\n    x = 1\nb()",
            "# On Colab:\n!pip install a\n# Elsewhere:\n# x = 1\nb()",
        ),
        # A removed local branch stays below its comments, as a comment.
        (
            "if k:\n    if ASK:\n        !pip install a\n    # Replace this locally:\n    elif (j\n          or l):\n"
            "        if b:\n\n            c(1,\n              2)\n    d()",
            "if k:\n    !pip install a\n    # Replace this locally:\n"
            "    # if (j\n    #       or l):\n    #     if b:\n    #         c(1,\n    #           2)\n    d()",
        ),
        (
            "if ASK:\n    !pip install a\nelse:\n    # Not here\n    b()\n    # more",
            "!pip install a\n# Not here\n# b()\n# more",
        ),
        ("if ASK:\n    root = '/content/drive/MyDrive/x'\nelse:\n    root = '.'", "root = '/content/drive/MyDrive/x'"),
        ("if ASK: os.environ['A'] = '1'\n", "os.environ['A'] = '1'\n"),
        ("if ASK:\n    a()\nelif k:\n    x = 1\nelse:\n    x = 2", "a()"),
        ("if k:\n    x = 1\nelif ASK:\n    a()\nelse:\n    x = 2", "if k:\n    x = 1\nelse:\n    a()"),
        # Other conditions of the test remain.
        (
            "if ASK and not exists(x):\n    !wget u\nelse:\n    y = 1",
            "if not exists(x):\n    !wget u\nelse:\n    y = 1",
        ),
        ("if ASK or k:\n    !pip install a", "!pip install a"),
        ("if ASK:\n    !pip install -U pip\n    !pip install a", "!pip install -U pip\n!pip install a"),
        ("if k or not ASK:\n    r = a\nelse:\n    r = '/content/v'", "if k:\n    r = a\nelse:\n    r = '/content/v'"),
        # The runtime reads the environment where Colab had the secret; the handler is for one that is missing.
        (
            "try:\n    from google.colab import userdata\n    t = userdata.get('T')\nexcept:\n    t = None",
            "try:\n    from google.colab import userdata\n    t = userdata.get('T')\nexcept:\n    t = None",
        ),
        (
            "try:\n  import google.colab\n  # why\n  !pip install a\nexcept ImportError as e:\n  print(e)",
            "# why\n!pip install a",
        ),
        ("try:\n  import google.colab\n  a()\nexcept:\n  pass", "try:\n  a()\nexcept:\n  pass"),
    ],
)
def test_work_done_only_in_the_colab_branch_is_kept(before, after):
    new, found = rewritten_one(before)
    assert new == after
    assert {finding.keeps for finding in found} <= {Keeps.EQUIVALENT}


def test_a_removed_folder_of_imports_is_reported():
    new, found = rewritten_one(MAE)
    assert new == "print('on Colab')\n!git clone https://example.org/mae.git\nsys.path.append('./mae')"
    (kept,) = (finding for finding in found if finding.rule == "LF303")
    assert (kept.keeps, "`sys.path.append('..')`" in kept.action) == (Keeps.NEEDS_HUMAN, True)


@pytest.mark.parametrize(
    "colab, local, is_local",
    [
        ("path = next(iter(files.upload()))", "path = 'a.csv'", True),
        ("path = next(iter(files.upload()))", "path = '/data/a.csv'", False),
        ("files.upload()", "print('copy a.csv to this folder')", False),
        ("files.download('a.csv')", "print('saved as a.csv')", True),
        ("files.download('a.csv')", "pass", False),
        ("files.download('a.csv')\n    !wget b", "print('saved as a.csv')", False),
    ],
)
def test_the_way_of_the_author_replaces_uploads_and_downloads(colab, local, is_local):
    new, found = rewritten_one(f"if ASK:\n    from google.colab import files\n    {colab}\nelse:\n    {local}")
    assert (new == local) is is_local
    assert ("files." in new) is not is_local
    (action, keeps), *_ = {(finding.action, finding.keeps) for finding in found if finding.rule in ("LF301", "LF303")}
    is_asked = is_local and "upload" in colab
    assert ("files.upload()" in action, keeps is Keeps.NEEDS_HUMAN) == (is_asked, is_asked)


IMPORTED = "try:\n    from google.colab import userdata\n    HAVE = True\nexcept ImportError:\n    HAVE = False"
KEPT = "from google.colab import userdata\nHAVE = True"
GUARDED = "try:\n    import google.colab\n    HAVE = True\nexcept ImportError:\n    HAVE = False"


@pytest.mark.parametrize(
    "cell, use, after",
    [
        (IMPORTED, "if HAVE:\n    t = userdata.get('T')\nelse:\n    t = None", (KEPT, ...)),
        (
            GUARDED,
            "if HAVE:\n    !git clone https://example.org/a/b",
            ("HAVE = False", "!git clone https://example.org/a/b"),
        ),
        (GUARDED, "if not HAVE:\n    x = 1\nelse:\n    !pip install a", ("HAVE = False", "!pip install a")),
        (GUARDED, "if HAVE:\n    x = 2\nelse:\n    x = 1", ("HAVE = False", ...)),
        (GUARDED, "HAVE = k\nif HAVE:\n    !pip install a", ("HAVE = False", ...)),
        (GUARDED.replace("import google.colab", "import ipywidgets"), "if HAVE:\n    !pip install a", (..., ...)),
    ],
)
def test_effects_below_a_flag_of_the_author_for_an_import_are_kept(cell, use, after):
    (first, second), _ = rewritten(cell, use)
    assert (first, second) == tuple(
        before if now is ... else now for before, now in zip((cell, use), after, strict=True)
    )


def test_files_that_may_be_missing_on_colab_are_replaced():
    colab = (
        "import google.colab\n  try:\n    ZipFile('x').extractall('/content/d')\n    x = f('d')\n  except OSError:\n"
    )
    cell = f"try:\n  {colab}    print('upload it')\nexcept ImportError:\n  x = f()"
    assert rewritten_one(cell)[0] == "x = f()"


def test_a_handler_stays_for_another_import_inside_a_block():
    cell = "try:\n  import google.colab\n  !pip install a\n  if k:\n    import a\nexcept ImportError:\n  a = None"
    assert rewritten_one(cell)[0] == cell.replace("  import google.colab\n", "")


def test_an_upload_is_replaced_in_a_try_too():
    colab = "try:\n  from google.colab import files\n  files.upload()\n  path = 'a.csv'\nexcept ImportError:\n  path = "
    assert rewritten_one(f"{colab}'data/a.csv'")[0] == "path = 'data/a.csv'"


@pytest.mark.parametrize(
    "colab, local, is_local",
    [
        ("path = '/content/drive/MyDrive/a.csv'", "path = 'data/a.csv'", True),
        ("path = '/content/drive/MyDrive/a.csv'", "path = 'data/b.csv'", False),
        ("!wget https://example.org/a.csv\n    path = 'a.csv'", "path = './data/a.csv'", True),
        ("!pip install a\n    path = '/content/a.csv'", "path = 'data/a.csv'", False),
        ("!wget https://example.org/b.csv", "path = 'data/a.csv'", False),
        ("path = '/content/drive/MyDrive'", "path = '..'", False),
    ],
)
def test_files_next_to_the_notebook_are_used(colab, local, is_local, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").touch()
    source = CellSource(f"if 'google.colab' in sys.modules:\n    {colab}\nelse:\n    {local}\n")
    new, _ = rewrite(source, cell_type="code", rules=RULES, facts=collect_facts([source], here=tmp_path))
    assert (new.text.strip() == local) is is_local


@pytest.mark.parametrize(
    "colab, local, is_local",
    [
        ("return '/content/drive/MyDrive/a'", "return 'b'", False),
        ("return Path('/content/a')", "pass", False),
        ("return '/content/a'", "return './a'", True),
        ("return HTML('<a href=\"/b\">')", "return None", True),
        ("return 'https://colab.example.org/a'", "return 'http://localhost/a'", True),
        ("return 1", "return 2", True),
        ("with open('/content/drive/MyDrive/a') as f: a = f.read()", "a = ''", False),
        ("with tf.device('/gpu:0'): a = 1", "a = 2", True),
        ("for a in listdir('/content/drive/MyDrive/b'): c.append(a)", "c = []", False),
    ],
)
def test_a_folder_that_a_branch_returns_or_reads_is_kept(colab, local, is_local):
    new, _ = rewritten_one(f"def f():\n    if ASK:\n        {colab}\n    else:\n        {local}\n    return 3")
    kept = local if is_local else colab
    assert new.split("\n    ")[1] == (kept if kept != "pass" else "return 3")


def test_a_folder_that_a_function_returns_below_an_import_is_kept():
    text = "def f():\n    try:\n        from google.colab import drive\n        if exists('/content/drive'):\n"
    text += "            return '/content/drive/MyDrive/a'\n    except ImportError:\n        pass\n    return '.'"
    assert "/MyDrive/a" in rewritten_one(text)[0]


@pytest.mark.parametrize(
    "before, after",
    [
        ("a = (\n    ASK  # why\n)", "a = (\n    False  # why\n)"),
        ("a = (ASK, 1)", "a = (False, 1)"),
        ("a = f(ASK)", "a = f(False)"),
    ],
)
def test_parentheses_around_a_replaced_value_are_removed(before, after):
    assert rewritten_one(before)[0] == after


def test_a_flag_is_false_even_if_the_colab_branch_is_kept():
    cell = "try:\n    import google.colab\n    IN_COLAB = True\n    !pip install a\nexcept:\n    IN_COLAB = False"
    new, _ = rewritten(cell, "if IN_COLAB:\n    n = 1\nelse:\n    n = 2")
    assert new == ["IN_COLAB = False\n!pip install a", "n = 2"]


def test_pip_itself_is_not_upgraded_outside_colab():
    new, (finding,) = rewritten_one("if ASK:\n    !pip install --upgrade pip\na()")
    assert new == "a()"
    assert finding.keeps is Keeps.NEEDS_HUMAN
    assert "`pip install --upgrade pip`" in finding.action


@pytest.mark.parametrize("text", ["x = os.getcwd() == '/content'", "x = 'content' in os.listdir(os.getcwd())"])
def test_other_questions_about_the_current_folder_stay(text):
    assert rewritten_one(text) == (text, [])


@pytest.mark.parametrize("question", ["os.path.isdir('/content')", "Path('/content/').exists()"])
def test_the_content_folder_test_is_a_detection_if_a_flag_uses_it(question):
    new, _ = rewritten(f"IN_COLAB = {question}", "if IN_COLAB:\n    n = 1\nelse:\n    n = 2", f"ok = {question}")
    assert new == ["IN_COLAB = False", "n = 2", f"ok = {question}"]


def test_a_tpu_branch_does_not_replace_the_others():
    """It cannot run locally, whatever names it binds."""
    rest = "\nif tpu:\n    strategy = TPUStrategy(tpu)\nelif gpus():\n    print('GPU')\nelse:\n    raise Error()"
    new, found = rewritten(f"tpu = os.environ.get('COLAB_TPU_ADDR'){rest}", "strategy.scope()")
    assert new == [f"tpu = None{rest}", "strategy.scope()"]
    assert {finding.rule for finding in found} == {"LF306"}


_TPU = "if ASK and 'COLAB_TPU_ADDR' in os.environ:\n    import jax.tools.colab_tpu\n    jax.tools.colab_tpu.setup_tpu()"


def test_a_tpu_set_up_that_nothing_refers_to_is_removed():
    assert rewritten_one(f"import os\n\n{_TPU}\nx = 1")[0] == "import os\n\nx = 1"


_LOCAL_FLAG = "local = False\ntry:\n    from google.colab.patches import cv2_imshow\nexcept:\n    local = True"


@pytest.mark.parametrize(
    "use, is_local",
    [
        ("if local:\n    show(x)\ncv2_imshow(x)", False),
        ("local = False\nif not local:\n    cv2_imshow(x)", False),
        ("if local == y:\n    cv2_imshow(x)", False),
    ],
)
def test_the_flag_of_the_author_for_a_local_run_is_set(use, is_local):
    (new, other), _ = rewritten(_LOCAL_FLAG, use)
    assert other == use
    assert (new == "local = False\nlocal = True") is is_local
    assert ("import cv2_imshow" in new) is not is_local


def test_a_flag_for_colab_decides_by_the_effects_of_its_branches():
    guard = "try:\n    from google.colab import userdata\n    COLAB = True\nexcept:\n    COLAB = False"
    (new, other), _ = rewritten(guard, "if COLAB:\n    os.environ['KEY'] = userdata.get('KEY')")
    assert "userdata" in new
    assert other == "os.environ['KEY'] = userdata.get('KEY')"


def test_a_colab_branch_is_kept_inside_a_function():
    text = "def f():\n    if ASK:\n        base = 1\n    return base"
    assert rewritten_one(text)[0] == "def f():\n    base = 1\n    return base"


@pytest.mark.parametrize(
    "said, left",
    [
        ("print('Using Colab Pro costs money')\n    ", "print('Using Colab Pro costs money')\n"),
        ("print('Not running in Colab')\n    ", "print('Not running in Colab')\n"),
        ("print('Open the files pane of Colab')\n    ", "print('Open the files pane of Colab')\n"),
    ],
)
def test_a_kept_branch_does_not_print_that_this_is_colab(said, left):
    new, _ = rewritten_one(
        f"try:\n    import google.colab\n    {said.strip()}\n    !git clone https://example.org/a/b\nexcept:\n    pass"
    )
    assert new == f"{left}!git clone https://example.org/a/b"


def test_a_data_url_is_no_folder():
    local = "if ASK:\n    # see b\n    # and c\n    url = 'data:video/mp4;base64,' + b\nelse:\n    url = str(path)"
    assert rewritten_one(local)[0] == "# On Colab: see b\n# and c\nurl = str(path)"


def test_a_branch_that_is_not_kept_needs_no_change_of_its_messages():
    assert (
        rewritten_one("if ASK:\n    print('Running in Colab')\nelse:\n    print('Running in Jupyter')")[0]
        == "print('Running in Jupyter')"
    )


@pytest.mark.parametrize("refusal", ["raise RuntimeError('Colab only')", "sys.exit()", "assert False"])
def test_a_local_branch_that_raises_is_removed(refusal):
    text = f"if ASK:\n    a()\nelse:\n    print('no')\n    {refusal}\n"
    new, found = rewritten_one(text)
    assert new == "a()\n"
    assert [finding.rule for finding in found] == ["LF303"]


def test_a_dashboard_of_the_colab_branch_is_kept():
    text = "if ASK:\n    %load_ext tensorboard\n    %tensorboard --logdir a\nelse:\n    print('use Colab')"
    new, found = rewritten_one(text)
    assert new == "%load_ext tensorboard\n%tensorboard --logdir a"
    assert [finding.rule for finding in found] == ["LF303"]


@pytest.mark.parametrize(
    "extension, is_kept",
    [("tensorboard", True), ("google.colab.data_table", False), ("autoreload", False), (" autoreload", False)],
)
def test_an_extension_of_the_colab_branch_is_kept(extension, is_kept):
    new, _ = rewritten_one(f"if ASK:\n    %load_ext {extension}\nelse:\n    print('use Colab')")
    assert new == (f"%load_ext {extension}" if is_kept else "print('use Colab')")


def test_a_compilation_of_the_colab_branch_is_kept():
    define = "if ASK:\n    !{}\nelse:\n    print('use Colab')"
    assert rewritten_one(define.format("nvcc -o a a.cu"))[0] == "!nvcc -o a a.cu"
    assert rewritten_one(define.format("nvcc --version"))[0] == "print('use Colab')"


def test_a_downloaded_script_that_only_colab_runs_is_a_decision():
    (found,) = rewritten_one("if ASK:\n    !wget -q https://h/a.sh -O- | bash")[1]
    assert (found.keeps, "`wget -q" in found.action) == (Keeps.NEEDS_HUMAN, True)
    (found,) = rewritten_one("if ASK:\n    !wget -q https://h/a.sh\n    !ls | bash b.sh")[1]
    assert found.keeps is Keeps.EQUIVALENT


def test_tensorflow_1_is_a_manual_step():
    (old,) = rewritten_one("if ASK:\n    %tensorflow_version 1.x\nb()")[1]
    assert (old.keeps, "TensorFlow 1.15" in old.action) == (Keeps.NEEDS_HUMAN, True)


@pytest.mark.parametrize(
    "text, rule",
    [
        ("x = os.environ['COLAB_JUPYTER_IP']", "LF308"),
        ("x = 'grpc://' + os.environ['COLAB_TPU_ADDR']", "LF308"),
        ("assert 'COLAB_TPU_ADDR' in os.environ, 'no TPU'", "LF308"),
        ("os.environ['PYTHONPATH'] += ':/a'", "LF308"),
        ("os.environ['PYTHONPATH'] = os.environ['PYTHONPATH'] + ':/a'", "LF308"),
        ("os.environ['LD_LIBRARY_PATH'] = f\"{os.environ['LD_LIBRARY_PATH']}:/a\"", "LF308"),
        ("!echo $COLAB_TPU_ADDR", "LF308"),
        ("%%bash\necho $COLAB_GPU", "LF308"),
    ],
)
def test_colab_variables_are_a_manual_step(text, rule):
    new, (finding,) = rewritten_one(text)
    assert new == text
    assert (finding.rule, finding.keeps, finding.changed) == (rule, Keeps.NEEDS_HUMAN, False)
    assert finding.action


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_LIBRARY_PATH"])
def test_a_general_variable_need_not_exist(name):
    (finding,) = rewritten_one(f"os.environ['{name}'] += ':/a'")[1]
    assert finding.message == f"`{name}` need not exist here"
    assert f"`os.environ.get('{name}', '')`" in finding.action
    assert "Colab" not in finding.action


def test_other_names_containing_colab_are_not_variables():
    assert rewritten_one("os.environ['DISABLE_COLAB_CACHE'] = '1'\nopen('COLABFOLD_READY')")[1] == []


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['PYTHONPATH'] = '/a'",
        "os.environ['PYTHONPATH'] = '/a'\nos.environ['PYTHONPATH'] += ':/b'",
        "if 'PYTHONPATH' in os.environ: os.environ['PYTHONPATH'] += ':/b'",
        "os.environ.setdefault('PYTHONPATH', '')\nprint(os.environ['PYTHONPATH'])",
        "%env PYTHONPATH=/a\nprint(os.environ['PYTHONPATH'])",
        "if os.environ.get('PYTHONPATH'):\n    os.environ['PYTHONPATH'] += ':/b'",
        "if os.getenv('LD_LIBRARY_PATH') is not None:\n    os.environ['LD_LIBRARY_PATH'] += ':/b'",
    ],
)
def test_a_variable_that_the_cell_sets_is_no_manual_step(text):
    assert rewritten_one(text) == (text, [])


def test_other_languages_are_unchanged():
    source = CellSource("if ('google.colab' in COLAB_GPU) {}", language="r")
    facts = collect_facts([source], language="r")
    assert rewrite(source, cell_type="code", rules=RULES, facts=facts) == (source, [])


@pytest.mark.parametrize(
    "body",
    [
        "return 'google.colab' in sys.modules",
        "try:\n        import google.colab\n        return True\n    except ImportError:\n        return False",
    ],
)
def test_the_callers_of_a_function_that_asks_are_a_manual_step(body):
    (new,), found = rewritten(f"def is_colab():\n    {body}")
    assert new == "def is_colab():\n    return False"
    assert [finding.keeps for finding in found] == [Keeps.NEEDS_HUMAN]


_MOUNT = "    drive.mount('/content/drive')\n    !mkdir a"


@pytest.mark.parametrize(
    "text, expected",
    [
        (f"if not os.path.exists('/content/drive'):\n{_MOUNT}", _MOUNT),
        (f"if not os.path.isdir('/content/drive/My Drive/'):\n{_MOUNT}", _MOUNT),
        (f"if not Path('/content/drive').exists():\n{_MOUNT}\nelse:\n    print('there')", _MOUNT),
        (f"if os.path.isdir('/content/drive/MyDrive'):\n    print('there')\nelse:\n{_MOUNT}", _MOUNT),
        (
            "p = '/content/drive'\nif not exists(p):\n    drive.mount(p)\n    a()",
            "p = '/content/drive'\ndrive.mount(p)\na()",
        ),
        (f"if c and not os.path.exists('/content/drive'):\n{_MOUNT}", f"if c:\n{_MOUNT}"),
    ],
)
def test_the_folder_of_the_drive_is_missing_before_the_first_mount(text, expected):
    kept = expected if expected[0] != " " else expected.replace("\n    ", "\n").strip()
    assert rewritten("from google.colab import drive", text)[0][1] == kept


@pytest.mark.parametrize(
    "above, text",
    [
        ("", "if not os.path.exists('/content/drive'):\n    drive.mount('/content/drive')"),
        ("", "if not os.path.exists('/content/drive/MyDrive/a'):\n" + _MOUNT),
        ("", "if os.path.exists('/content/drive'):\n" + _MOUNT),
        ("", "drive.mount('/content/drive')\nif not os.path.exists('/content/drive'):\n" + _MOUNT),
        ("drive.mount('/content/drive')", "if not os.path.exists('/content/drive'):\n" + _MOUNT),
        ("", "if not os.path.exists('/content/drive'):\n    print('mount the drive')"),
    ],
)
def test_other_questions_for_the_folder_of_the_drive_stay(above, text):
    assert rewritten("from google.colab import drive", above, text)[0][2] == text


def test_what_a_second_run_does_with_the_drive_is_named():
    text = f"if not os.path.exists('/content/drive'):\n{_MOUNT}\nelse:\n    !git pull\n    print('there')"
    (finding,) = rewritten("from google.colab import drive", text)[1]
    assert finding.message.endswith("; removed with the other branch: `print('there')`")
    assert finding.action.endswith(": `git pull`")


def test_the_comment_at_the_end_of_a_kept_branch_stays_once():
    local = "else:\n    # local\n    print('x')"
    new, _ = rewritten_one(f"if 'google.colab' in sys.modules:\n    !pip install a\n    # last\n{local}")
    assert new.rstrip("\n") == "!pip install a\n# last\n# local\n# print('x')"
