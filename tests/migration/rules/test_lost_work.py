"""Work of a branch that is removed together with a test for Colab is kept or reported."""

from time import perf_counter

import pytest

from migration.analysis.facts import collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import colab_api
from migration.rules.rewriting import rewrite
from tests.migration.rules.branches import RULES, rewritten, rewritten_one, rewritten_with


@pytest.mark.parametrize(
    "local, lost",
    [
        ("!pip install plant", "`pip install --no-deps plant valve`"),
        ("x = 1  # of here", "from_tpu"),
        ("here()", "`pip install --upgrade pip setuptools`"),
    ],
)
def test_differing_branches_are_a_manual_step(local, lost):
    colab = {"!": "!pip install --no-deps plant valve", "x": "from_tpu(TPUStrategy())"}.get(
        local[0], "!pip install --upgrade pip setuptools"
    )
    new, (finding,) = rewritten_one(f"if ASK:\n    {colab}\nelse:\n    {local}")
    assert new == local
    assert finding.keeps is Keeps.NEEDS_HUMAN
    assert lost in finding.action


_IN_DRIVE = (
    "try:\n    import google.colab\n    assert os.path.exists('/content/drive/MyDrive/d')\n    on_colab = True\n"
    "    data = '/content/drive/MyDrive/d'\nexcept ImportError:\n    on_colab = False"
)


@pytest.mark.parametrize(
    "local, is_local",
    [
        ("data = '.'", False),
        ("other = '.'\n    gdown.download_folder(id='x', output=other)", False),
    ],
)
def test_the_drive_is_not_needed_if_the_author_downloads_its_files_elsewhere(local, is_local):
    new, _ = rewritten(_IN_DRIVE, f"if not on_colab:\n    {local}", "print(data)")
    assert (new[0] == "on_colab = False") is is_local
    assert new[1] == local.replace("\n    ", "\n") or not is_local
    assert rewritten(*new)[0] == new


@pytest.mark.parametrize(
    "colab, local, lost",
    [
        ("auth.authenticate_user()", "get('plant')", "`get('plant')`"),
        ("hub.set_up(userdata.get('A'))", "hub.login()", "`hub.login()`"),
        ("!git clone https://example.org/plant", "!pip install plant", "`pip install plant`"),
        ("!git clone https://example.org/plant", "print('here')", ""),
    ],
)
def test_the_work_of_a_removed_local_branch_is_a_manual_step(colab, local, lost):
    define = "def get(module):\n    !pip install {module}"
    (_, new), (finding,) = rewritten(define, f"if ASK:\n    {colab}\nelse:\n    {local}")
    assert new == colab
    assert (finding.keeps is Keeps.NEEDS_HUMAN, lost in finding.action) == (bool(lost), True)


def test_the_comment_behind_the_header_of_a_branch_stays():
    kept = "# needs c\n!pip install a"
    assert rewritten_one("if ASK:  # needs c\n    !pip install a\nb()")[0] == f"{kept}\nb()"
    assert rewritten_one("try:  # needs c\n  import google.colab\n  !pip install a\nexcept:  # d\n  pass")[0] == kept
    assert rewritten_one("if ASK:  # on Colab\n    !pip install a")[0] == "!pip install a"
    assert rewritten_one("if ASK:  # c\n    x = 1\nelse:  # d\n    x = 2")[0] == "# d\nx = 2"


def test_advice_and_programs_of_a_removed_local_branch_are_a_manual_step():
    local = "try:\n        import a\n    except:\n        print('Install a with conda')\n    !./start b"
    (finding,) = rewritten_one(f"if ASK:\n    !pip install a\n    %cd a\nelse:\n    {local}")[1]
    assert finding.keeps is Keeps.NEEDS_HUMAN
    assert "`print('Install a with conda')`" in finding.action
    assert "`./start b`" in finding.action


def test_magics_of_a_removed_local_branch_are_a_manual_step():
    local = "%autoreload 2\n    %load_ext a\n    %cd b"
    (finding,) = rewritten_one(f"if ASK:\n    !pip install a\n    %cd b\nelse:\n    {local}")[1]
    assert finding.action.endswith(": `%autoreload 2`; `%load_ext a`")


def test_what_both_branches_do_is_not_lost():
    said = "print('run conda install a')"
    local = f"%autoreload 2\n    {said}\n    %load_ext b"
    (finding,) = rewritten_one(
        f"if ASK:\n    !pip install a\n    %cd c\n    %autoreload 2\n    {said}\nelse:\n    {local}"
    )[1]
    assert finding.action.endswith(": `%load_ext b`")
    assert "removed with the other branch" not in finding.message


def test_a_message_in_a_nested_block_of_a_removed_branch_is_named():
    local = "if x:\n        print('here')"
    (finding,) = rewritten_one(f"if ASK:\n    !pip install a\n    %cd c\nelse:\n    {local}")[1]
    assert finding.message.endswith("; removed with the other branch: `print('here')`")


def test_a_program_in_the_python_of_colab_does_not_replace_the_local_one():
    text = "if ASK:\n    !pip install a\n    !/usr/local/lib/python*/dist-packages/a/bin/a\nelse:\n    !a"
    new, (finding,) = rewritten_one(text)
    assert new == "!a"
    assert "`pip install a`" in finding.action


def test_a_call_has_the_effects_of_the_function():
    define = "def get(path):\n    return urlretrieve('https://example.org', path)"
    assert rewritten(define, "if ASK:\n    x = get('a')\nelse:\n    x = 1")[0][1] == "x = get('a')"


_IN_LIST = (
    "IN_COLAB = False\ntry:\n    import google.colab, torch\n    IN_COLAB = True\n    %cd /content/a\nexcept:\n    pass"
)


def test_an_import_of_colab_in_a_list_is_a_test():
    kept = _IN_LIST.replace("google.colab", "landfall_runtime").replace("True", "False")
    assert rewritten_with(colab_api.RULES, _IN_LIST)[0] == [kept]


def test_what_is_here_is_not_fetched_again():
    text = "if ASK or not os.path.exists('plant'):\n    !git clone https://example.org/plant"
    new, (finding,) = rewritten_one(text)
    assert new == text.replace("ASK or ", "")
    assert finding.keeps is Keeps.EQUIVALENT


def test_a_condition_with_or_is_a_manual_step():
    text = "if find_spec('plant') is None or ASK:\n    !pip install plant valve\nelif k:\n    !pip install plant"
    new, (finding,) = rewritten_one(text)
    assert new.startswith("if find_spec('plant') is None:\n")
    assert (finding.rule, finding.keeps) == ("LF305", Keeps.NEEDS_HUMAN)
    assert "valve" in finding.action
    assert "removed" not in finding.action  # the lines are still there


def test_the_repository_of_the_notebook_is_not_cloned():
    text = "if ASK:\n    !git clone -q https://example.org/plant.git\n    %cd plant\n    %pip install -e ."
    source = CellSource(text.replace("ASK", "'google.colab' in sys.modules"))
    for repository, expected in (("plant", ""), ("tank", text.split("\n", 1)[1].replace("    ", ""))):
        facts = collect_facts([source], repository=repository)
        assert rewrite(source, cell_type="code", rules=RULES, facts=facts)[0].text == expected


def test_equal_secrets_or_packages_need_no_manual_step():
    text = "if ASK:\n    t = userdata.get('T')\nelse:\n    t = os.environ['T']"
    new, (finding,) = rewritten_one(text)
    assert (new, finding.keeps) == ("t = os.environ['T']", Keeps.EQUIVALENT)
    _, (finding,) = rewritten_one("if ASK:\n    !pip install --no-deps plant\nelse:\n    !pip install plant tank")
    assert finding.keeps is Keeps.EQUIVALENT


_DELETES = "rm -rf /root/.cache/models*"


@pytest.mark.parametrize(
    "colab",
    [f"%{_DELETES}", f"!{_DELETES}", "shutil.rmtree('/root/.cache')", f"!{_DELETES}\n        !git clone x.org/a/b"],
)
def test_a_deletion_for_colab_never_runs_here(colab):
    new, (finding,) = rewritten_one("def f():\n    x = 1\n    if ASK:\n        " + colab)
    assert new == "def f():\n    x = 1"
    assert (finding.rule, finding.keeps) == ("LF301", Keeps.NEEDS_HUMAN)


def test_a_folder_that_is_only_named_is_not_created():
    for deletion in ("shutil.rmtree(folder)", "!rm -rf /content/a"):
        new, (finding,) = rewritten_one(f"if ASK:\n    folder = '/content/a'\n    {deletion}\n    !pip install a")
        assert (new, finding.keeps) == ("", Keeps.NEEDS_HUMAN)
        assert "`pip install a`" in finding.action


@pytest.mark.parametrize("colab", ["!rm -rf b\n!git clone https://x.org/a/b", "!rm -rf sample_data\n!pip install b"])
def test_a_deletion_of_what_the_branch_fetches_or_of_the_samples_stays_with_it(colab):
    assert rewritten_one("if ASK:\n    " + colab.replace("\n", "\n    "))[0] == colab


def test_a_function_that_only_computes_is_not_needed_here():
    define = "def inner():\n    %rm -r /root/.cache\n    gc.collect()\n\ndef run(models):\n    inner()"
    (_, new), (finding,) = rewritten(define, "if ASK:\n    run(a)")
    assert (new, finding.keeps) == ("", Keeps.NEEDS_HUMAN)
    for needed in ("!git clone https://x.org/a/b", "sys.path.append('a')", "drive.mount('/content/drive')", "!./a.sh"):
        assert rewritten(define.replace("gc.collect()", needed), "if ASK:\n    run(a)")[0][1] == "run(a)"


def test_functions_that_call_each_other_have_the_effects_of_both():
    define = "def f():\n    g()\n    os.chdir('a')\n\ndef g():\n    f()\n    urlretrieve('x', 'y')"
    assert rewritten(define, "if ASK:\n    f()\n    g()")[0][1] == "f()\ng()"


def test_effects_pass_through_a_long_chain_of_functions_quickly():
    chain = "".join(f"def f{number}():\n    f{number + 1}()\n\n" for number in range(400))
    start = perf_counter()
    _, (finding,) = rewritten(f"{chain}def f400():\n    os.chdir('a')", "if ASK:\n    f0()")
    assert "changes folders" in finding.message
    assert perf_counter() - start < 5


def test_effects_that_change_in_turn_are_computed_quickly():
    circle = "def login():\n    download()\n\ndef download():\n    login()\n\n"
    callers = "".join(f"def f{number}():\n    login()\n    os.chdir('a')\n\n" for number in range(300))
    calls = "".join(f"    f{number}()\n" for number in range(300))
    start = perf_counter()
    _, (finding,) = rewritten(circle + callers, f"if ASK:\n{calls}")
    assert "changes folders" in finding.message
    assert perf_counter() - start < 5


def test_a_flag_of_a_cell_whose_first_line_is_indented_is_found():
    cells, _ = rewritten("  x = 1\ny = 2\n  IN_COLAB = True", "if IN_COLAB:\n    a()\nelse:\n    b()")
    assert cells[1] == "b()"


def test_a_flag_that_only_the_kept_branch_for_colab_sets_is_false():
    set_up = "try:\n    import google.colab\n    IN_COLAB = True\n    !pip install plant\nexcept:\n    pass"
    cells, _ = rewritten(set_up, "if IN_COLAB:\n    a()\nelse:\n    b()")
    assert cells == ["IN_COLAB = False\n!pip install plant", "b()"]
    assert rewritten(*cells)[0] == cells


@pytest.mark.parametrize(
    "module, use",
    [
        ("userdata", "def load(name):\n    return userdata.get(name) if userdata else None\nkey = load('KEY')"),
        ("drive", "if drive is not None:\n    drive.mount('/content/drive')\nelse:\n    d = '.'"),
        ("files", "if files:\n    files.download('a')"),
    ],
)
def test_a_module_of_colab_with_a_local_counterpart_is_not_missing_here(module, use):
    text = f"try:\n    from google.colab import {module}\nexcept ImportError:\n    {module} = None\n{use}"
    new, (finding, *_) = rewritten_one(text)
    assert new == f"from google.colab import {module}\n{use}"
    assert f"only it defines `{module}`" in finding.message


def test_a_module_of_colab_that_is_none_above_its_import_is_not_missing_here():
    use = "if userdata:\n    key = userdata.get('KEY')"
    text = f"userdata = None\ntry:\n    from google.colab import userdata\nexcept ImportError:\n    pass\n{use}"
    assert rewritten_one(text)[0] == f"userdata = None\nfrom google.colab import userdata\n{use}"


def test_a_module_that_nothing_uses_or_that_only_colab_has_is_missing_here():
    text = "try:\n    from google.colab import {0}\nexcept ImportError:\n    {0} = None\n{1}"
    assert rewritten(text.format("drive", "a()"))[0][0] == "drive = None\na()"
    assert rewritten(text.format("output", "if output:\n    output.clear()"))[0][0].startswith("output = None\n")


def test_a_handler_of_a_mount_does_not_move_the_results():
    mount = "from google.colab import drive\n    drive.mount('/content/drive')"
    text = f"try:\n    {mount}\n    M = True\nexcept Exception:\n    d = '/tmp/q'"
    assert "'/tmp/q'" not in rewritten_one(text)[0]


def test_a_log_in_stands_for_another_one_to_the_same_service():
    text = "if ASK:\n    !huggingface-cli login\nelse:\n    {}"
    assert rewritten_one(text.format("notebook_login()"))[0] == "notebook_login()"
    assert rewritten_one(text.format("wandb.login()"))[0] == "!huggingface-cli login"
