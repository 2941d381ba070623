import pytest

from migration.analysis.facts import NotebookFacts, collect_facts
from migration.colab.paths import DEFAULT_MOUNTS
from migration.python.source import CellSource


def _sources(*texts):
    return [CellSource(text, index=index) for index, text in enumerate(texts)]


def _paths(*texts):
    """The paths of the uses in the last cell."""
    sources = _sources(*texts)
    facts = collect_facts(sources)
    return [use.path for use in facts.colab.cell(sources[-1]).uses]


@pytest.mark.parametrize(
    "texts, paths",
    [
        (("from google.colab import files\nfiles.upload()",), ["files.upload"]),
        (("from google.colab import drive as d, files", "d.mount(x)\nfiles"), ["drive.mount", "files"]),
        (("import google.colab", "google.colab.output.clear()"), ["output.clear"]),
        (("import google.colab as gc", "gc.files.download(x)"), ["files.download"]),
        (("import google.colab.files as f", "f.view(x)"), ["files.view"]),
        (("from google import colab", "colab.userdata.get('K')"), ["userdata.get"]),
        (("from google.colab.patches import cv2_imshow as show", "show(image)"), ["patches.cv2_imshow"]),
        (("from google.colab.output import eval_js", "eval_js('1')"), ["output.eval_js"]),
        (("from google.colab import *", "files.upload()"), []),
        (("google.colab.files.upload()",), ["files.upload"]),
        (("from google.colab import files\nupload = files.upload", "upload()"), ["files.upload"]),
        (("if a:\n    from google.colab import files\nelse:\n    pass\nfiles.upload()",), ["files.upload"]),
        (("print 1\nfrom google.colab import files", "files.upload()"), ["files.upload"]),
    ],
)
def test_names_are_resolved_across_cells(texts, paths):
    assert _paths(*texts) == paths


@pytest.mark.parametrize(
    "text",
    [
        "files = ['a', 'b']\nfiles.upload()",
        "for files in range(3):\n    files.upload()",
        "with open('x') as files:\n    files.upload()",
        "import files\nfiles.upload()",
        "def files(): pass\nfiles.upload()",
        "def f(files):\n    files.upload()",
        "def f():\n    files = 1\n    files.upload()",
        "def f():\n    for files in x:\n        files.upload()",
        "f = lambda files: files.upload()",
        "[files.upload() for files in x]",
        "class A:\n    files = 1\n    files.upload()",
        "try:\n    pass\nexcept ValueError as files:\n    files.upload()",
        "match x:\n    case [files]:\n        files.upload()",
        "del files\nfiles.upload()",
        "(files := 1)\nfiles.upload()",
    ],
)
def test_a_rebound_name_is_not_a_colab_name(text):
    assert _paths("from google.colab import files", text) == []


@pytest.mark.parametrize(
    "texts, paths",
    [
        # A function sees the module as it is when it is called.
        (("def f():\n    files.upload()", "from google.colab import files", "f()\nfiles"), ["files"]),
        (("def f():\n    files.upload()\nfrom google.colab import files",), ["files.upload"]),
        (("def f():\n    from google.colab import files\n    def g():\n        files.upload()",), ["files.upload"]),
        (("def f():\n    global files\n    from google.colab import files", "files"), ["files"]),
        (("class A:\n    from google.colab import files\n    def f(self):\n        files.upload()",), []),
        (("def f(a=files.upload()): pass\nfrom google.colab import files",), ["files.upload"]),
    ],
)
def test_names_follow_the_rules_of_scope(texts, paths):
    assert _paths(*texts) == paths


def test_a_function_above_the_import_uses_it():
    sources = _sources("def f():\n    files.upload()", "from google.colab import files")
    assert [use.path for use in collect_facts(sources).colab.cell(sources[0]).uses] == ["files.upload"]


def test_a_name_without_an_import_is_not_a_colab_name():
    assert _paths("files.upload()\ndrive.mount('/content/drive')") == []


def test_the_path_of_a_node():
    (source,) = _sources("import google.colab\ngoogle.colab.drive.mount('x')")
    paths = collect_facts([source]).colab.cell(source).names.paths
    chain = source.tree.body[1].value.func
    assert paths.get(id(chain)) == "drive.mount"
    assert paths.get(id(chain.value)) == "drive"
    assert paths.get(id(chain.value.value)) == ""
    assert paths.get(id(chain.value.value.value)) is None


@pytest.mark.parametrize(
    "text, flags",
    [
        ("IN_COLAB = 'google.colab' in sys.modules", {"IN_COLAB": False}),
        ("hosted = 'google.colab' in str(get_ipython())", {"hosted": False}),
        ("LOCAL = 'google.colab' not in sys.modules", {"LOCAL": True}),
        ("cloud = importlib.util.find_spec('google.colab') is not None", {"cloud": False}),
        ("a = b = 'COLAB_GPU' in os.environ", {"a": False, "b": False}),
        ("gpu = os.getenv('COLAB_GPU')", {"gpu": None}),
        (
            "try:\n    import google.colab\n    IN_COLAB = True\nexcept ImportError:\n    IN_COLAB = False",
            {"IN_COLAB": False},
        ),
        (
            "on_colab = False\ntry:\n    import google.colab\n    on_colab = True\nexcept:\n    pass",
            {"on_colab": False},
        ),
        ("try:\n    %tensorflow_version 2.x\n    COLAB = True\nexcept:\n    COLAB = False", {"COLAB": False}),
        ("IS_COLAB = True", {"IS_COLAB": False}),
        ("IN_COLAB = 'google.colab' in sys.modules\nUSE = not IN_COLAB", {"IN_COLAB": False, "USE": True}),
        # No flags: something else decides, or a person does.
        ("IN_COLAB = True #@param {type:'boolean'}\n'google.colab'", {}),
        ("IN_COLAB = 'google.colab' in sys.modules\nIN_COLAB = ask()", {}),
        ("def f():\n    global IN_COLAB\n    IN_COLAB = 1\nIN_COLAB = 'google.colab' in sys.modules", {}),
        ("mount = False\nif 'google.colab' in sys.modules:\n    mount = True", {}),
        ("def f(x):\n    return 'google.colab' in sys.modules", {}),
        ("for IN_COLAB in (True, False): pass", {}),
        ("IN_COLAB = 'google.colab' in sys.modules\nx = IN_COLAB\nif x: a()\nx = 3", {"IN_COLAB": False}),
    ],
)
def test_flags_are_assigned_only_the_detection_result(text, flags):
    assert collect_facts(_sources(text)).colab.flags == flags


def test_a_flag_is_known_in_every_cell():
    facts = collect_facts(_sources("IN_COLAB = 'google.colab' in sys.modules", "IN_COLAB = len(x) > 3"))
    assert not facts.colab.flags


@pytest.mark.parametrize(
    "texts, needed",
    [
        (("if 'google.colab' in sys.modules:\n    base = 1", "open(base)"), {"base"}),
        (("if 'google.colab' in sys.modules:\n    base = 1", "!ls {base}"), {"base"}),
        (("try:\n    from google.colab import files\nexcept ImportError:\n    pass", "files.upload()"), {"files"}),
        (("if 'google.colab' in sys.modules:\n    base = 1\nelse:\n    base = 2", "open(base)"), set()),
        (("base = 2\nif 'google.colab' in sys.modules:\n    base = 1", "open(base)"), set()),
        (("if 'google.colab' in sys.modules:\n    base = 1\n    open(base)",), set()),
        (("if 'google.colab' in sys.modules:\n    n = 1", "def f(n):\n    return n\n[n for n in x]"), set()),
        (("if 'google.colab' in sys.modules:\n    from google.colab import drive", "drive.mount('/a')"), set()),
    ],
)
def test_names_bound_only_in_colab_branches_are_found(texts, needed):
    assert collect_facts(_sources(*texts)).colab.context.needed == needed


@pytest.mark.parametrize(
    "texts, mounts",
    [
        (("from google.colab import drive\ndrive.mount('/content/gdrive/')",), ("/content/gdrive",)),
        (("from google.colab import drive\ndrive.mount(mountpoint='/gdrive')",), ("/gdrive",)),
        (("from google.colab import drive\ndrive.mount('drive')",), ("/content/drive",)),
        (("from google.colab import drive", "root = '/content'", "drive.mount(root + '/g')"), ("/content/g",)),
        (
            ("from google.colab import drive\ndrive.mount('/content/drive')\ndrive.mount('/content/drive2')",),
            ("/content/drive2", "/content/drive"),
        ),
        (("print 1\nfrom google.colab import drive\ndrive.mount('/content/old')",), ("/content/old",)),
        (("from google.colab import drive\ndrive.mount(ask())",), DEFAULT_MOUNTS),
        (("drive = PyDrive()\ndrive.mount('/content/other')",), DEFAULT_MOUNTS),
    ],
)
def test_mount_points_are_found(texts, mounts):
    assert collect_facts(_sources(*texts)).mounts == mounts


@pytest.mark.parametrize(
    "text, static",
    [
        ("drive.mount('/content/drive', force_remount=True)", True),
        ("drive.mount('/content/drive')\ndrive.flush_and_unmount()", True),
        ("drive = GoogleDrive()\ndrive.CreateFile()", True),
        ("drive.mount(place)", False),
        ("ok = drive.mount('/content/drive')", False),
        ("f(drive)", False),
        ("b.on_click(lambda _: drive.mount('/content/drive'))", False),
        ("print 1\ndrive.mount('/content/drive')", False),
    ],
)
def test_a_static_mount_is_the_only_use_of_the_drive(text, static):
    assert collect_facts(_sources("from google.colab import drive", text)).static_mount is static


def test_the_names_of_the_folders_are_free():
    facts = collect_facts(_sources("WORK_DIR = '/tmp'", "!echo $LANDFALL_WORK_DIR $DRIVE_DIRECTORY"))
    assert (facts.work, facts.drive) == ("LANDFALL_WORK_DIR_2", "DRIVE_DIR")


def test_names_of_an_earlier_migration_are_kept():
    setup = (
        'ROOT = os.environ["ROOT"] = os.path.abspath(os.path.join(START_DIR, os.path.expanduser(work_dir)))\n'
        'DRIVE_DIR = os.environ["DRIVE_DIR"] = os.path.abspath(os.path.join(ROOT, os.path.expanduser(drive_dir)))\n'
    )
    facts = collect_facts(_sources(setup, "open(f'{ROOT}/x')"))
    assert (facts.work, facts.drive) == ("ROOT", "DRIVE_DIR")


def test_another_language_has_no_facts():
    (source,) = [CellSource("IN_COLAB = 'google.colab' in sys.modules", language="r")]
    assert collect_facts([source], language="r") == NotebookFacts(language="r", first_code=0)


def test_a_cell_without_a_relevant_word_is_not_parsed():
    sources = _sources("from google.colab import files", "x = 1", "# https://colab.research.google.com/x\ny = 2")
    collect_facts(sources)
    assert ["tree" in vars(source) for source in sources] == [True, False, False]


@pytest.mark.parametrize(
    "texts, folders",
    [
        (("a = f'/content/{b}'",), {"work"}),
        (("!ls /content/drive/MyDrive",), {"work", "drive"}),
        (("from google.colab import drive\ndrive.mount('/content/drive')", "# '/content'"), set()),
        (("a = 'https://a.b/content'",), set()),
    ],
)
def test_only_folders_that_the_code_names_are_known(texts, folders):
    assert collect_facts(_sources(*texts)).folders == folders
