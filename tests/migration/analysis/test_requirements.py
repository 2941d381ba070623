import pytest

from migration.analysis.facts import collect_facts
from migration.analysis.imports import normal_name
from migration.analysis.preinstalled import OTHER_NAMES, SAME_NAME
from migration.analysis.requirements import Requirements, collect_requirements, requirements_text, system_text
from migration.python.source import CellSource


def _collect(*texts, language="python"):
    cells = [CellSource(text, index=at, language=language) for at, text in enumerate(texts)]
    return collect_requirements(cells, collect_facts(cells, language=language).colab)


def _python(*texts):
    return list(_collect(*texts).python)


_UV = ("# Imported or called by the notebook, and installed on Colab:", "uv")


def _accepted(text, tmp_path):
    """The requirements that pip reads from a file; raises if it rejects a line."""
    from pip._internal.network.session import PipSession
    from pip._internal.req.constructors import install_req_from_parsed_requirement
    from pip._internal.req.req_file import parse_requirements

    path = tmp_path / "requirements.txt"
    path.write_text(text, encoding="utf-8")
    parsed = list(parse_requirements(str(path), session=PipSession()))
    return [install_req_from_parsed_requirement(requirement) for requirement in parsed]


def test_commands_of_a_removed_branch_are_left_out():
    branches = "if 'google.colab' in sys.modules:\n    !pip install --no-deps a c\nelse:\n    !pip install a"
    assert _python(branches) == ["a"]
    assert _python("if 'google.colab' in sys.modules:\n    !pip install a") == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "!pip install x==1.0",
        "!pip3 -q install --no-cache-dir x==1.0 2>&1 | tail -1",
        "%pip install -qU x==1.0",
        "pip install x==1.0",
        "!cd a && sudo python3 -m pip install x==1.0",
        "!{sys.executable} -m pip install x==1.0",
        "!uv pip install --system x==1.0",
        "%%bash\nif true; then\n  pip install \\\n    x==1.0\nfi",
        "%%capture\nif IN_COLAB:\n    !pip install 'x==1.0'",
        "%shell pip install x==1.0",
        'os.system("pip install x==1.0")',
        "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'x==1.0'])",
        "subprocess.run('pip install x==1.0'.split())",
        "def a(b, c=1):\n    return run(b, shell=True)\na('pip install x==1.0')",
        "a = ['pip', 'install', 'x==1.0']\nrun(a)\nrun(a)",
        "for a in ('pip install x==1.0', 'ls'):\n    os.system(a)",
        "a = [['pip', 'install', 'x==1.0']]\nfor b in a:\n    run(b)",
        "get_ipython().system('pip install x==1.0')",
        "out = !pip install x==1.0",
        "print 'Python 2'\n!pip install x==1.0",
    ],
)
def test_a_requirement_is_found_wherever_it_is_installed(text):
    assert [line for line in _python(text) if line not in _UV] == ["x==1.0"]


@pytest.mark.parametrize(
    "text",
    [
        "# !pip install x",
        "!pip uninstall -y x",
        "!pip download x",
        "!echo pip install x",
        "print('pip install x')",
        "!conda list",
        "!/content/miniconda/bin/pip install x",
        "!$ENV/bin/python -m pip install x",
        "!/opt/conda/bin/conda install x",
        "x = 1",
        "",
        "%%bash\ncat <<EOF\npip install x\nEOF",
        "%%html\npip install x",
        "!pip install",
        "!pip install -q",
    ],
)
def test_commands_without_an_install_give_no_requirement(text):
    assert _collect(text) == Requirements()


@pytest.mark.parametrize(
    "text",
    [
        "!/root/.local/bin/uv pip install --system foo",
        "!~/.local/bin/uv pip install --system foo",
        "!$HOME/.cargo/bin/uv pip install --system foo",
        "!{sys.prefix}/bin/python -m pip install foo",
        "!{sys.prefix}/bin/pip install foo",
        "!{sys.executable} -m pip install foo",
        "os.system(f'{sys.executable} -m pip install foo')",
        "os.system(f'cd a && \"{sys.executable}\" -m pip install foo')",
        "os.system(sys.executable + ' -m pip install foo')",
        "os.system(sys.prefix + '/bin/pip install foo ' + options)",
    ],
)
def test_uv_in_any_folder_and_the_programs_of_the_kernel_give_requirements(text):
    assert [line for line in _python(text) if line not in _UV] == ["foo"]


@pytest.mark.parametrize(
    "text, package",
    [
        ("!uv pip install --system x", "uv"),
        ("!python -m spacy download en_core_web_sm", "spacy"),
        ("!python3 -u -m nltk.downloader punkt", "nltk"),
        ("%matplotlib widget", "ipympl"),
        ("!pip install qrcode\nimport qrcode\nqrcode.make('a')", "pillow"),
    ],
)
def test_programs_and_modules_that_commands_run_are_required(text, package):
    assert package in _python(text)


def test_modules_of_python_and_of_the_notebook_are_not_required():
    assert _python("%%writefile own.py\npass", "!python -m own\n!python -m http.server\n!python -m pip list") == []


def test_other_languages_give_no_requirement():
    assert _collect("!pip install x", language="R") == Requirements()


@pytest.mark.parametrize(
    "given, line",
    [
        ("'x[a, b]>=1,<2'", "x[a, b]>=1,<2"),
        ("x>=1", "x>=1"),
        ("'x>=1; python_version<\"3.9\"'", 'x>=1; python_version<"3.9"'),
        ("x==2.*", "x==2.*"),
        ("x==1.0+cu118", "x==1.0+cu118"),
        ("git+https://example.org/a/b.git@v1#egg=b", "git+https://example.org/a/b.git@v1#egg=b"),
        ("'b @ git+https://example.org/a/b'", "b @ git+https://example.org/a/b"),
        ("-e git+https://example.org/a/b#egg=b", "-e git+https://example.org/a/b#egg=b"),
        ("https://example.org/b-1-py3-none-any.whl", "https://example.org/b-1-py3-none-any.whl"),
        ("-r https://example.org/r.txt", "-r https://example.org/r.txt"),
        ("--no-deps x", "x  # the notebook installs it with --no-deps"),
        ("x=={version}", "# x=={version} (a part of it is a Python expression)"),
        ("$packages", "# $packages (a part of it is a Python expression)"),
        (".", "# . (a folder or file: run the cell that installs it)"),
        ("-e '.[dev]'", "# -e .[dev] (a folder or file: run the cell that installs it)"),
        ("/content/x", "# $WORK_DIR/x (a folder or file: run the cell that installs it)"),
        ("a/b-1-py3-none-any.whl", "# a/b-1-py3-none-any.whl (a folder or file: run the cell that installs it)"),
        ("requirements.txt", "# requirements.txt (a folder or file: run the cell that installs it)"),
        ("-e a_folder", "# -e a_folder (a folder or file: run the cell that installs it)"),
        ("--find-links https://example.org", "--find-links https://example.org"),
        ("-r requirements.txt", "# -r requirements.txt (a folder or file: run the cell that installs it)"),
        ("-r /content/a/b.txt", "# -r a/b.txt (a folder or file: run the cell that installs it)"),
        ('-r "$WORK_DIR"/a/b.txt', "# -r a/b.txt (a folder or file: run the cell that installs it)"),
        ("--pre x", "x>=0.dev0"),
        ("--pre x[b]>=1", "x[b]>=1,>=0.dev0"),
        ("--pre x==1", "x==1"),
        ("x==latest", "# x==latest (pip does not accept it)"),
        ("json", "# json (is part of Python)"),
        ("argparse==1.4.0", "# argparse==1.4.0 (is part of Python)"),
        ("and", "# and (is part of Python)"),
        ("x,", "# x, (pip does not accept it)"),
        ("x==3.25.3,", "x==3.25.3"),
        ("git+https://me:abc@example.org/a/b", "# git+https://example.org/a/b (needs credentials)"),
        ("git+ssh://git@example.org/a/b", "git+ssh://git@example.org/a/b"),
    ],
)
def test_each_kind_of_requirement(given, line):
    assert _python(f"!pip install {given}") == [line]


def test_a_placeholder_filled_by_python_is_marked():
    assert _python("os.system(f'pip install x=={v} y')") == ["y", "# x=={v} (a part of it is a Python expression)"]


@pytest.mark.parametrize(
    "cells, lines",
    [
        (["for p in ['a', 'b==1']:\n    !pip install {p}"], ["a", "b==1"]),
        (["for p in ('a', 'b>=1'):\n    !pip install -q $p"], ["a", "b>=1"]),
        (["for p in ['a', 'b']:\n    os.system(f'pip install {p}')"], ["a", "b"]),
        (["ps = ['a', 'b>=1']", "for p in ps:\n    run([sys.executable, '-m', 'pip', 'install', p])"], ["a", "b>=1"]),
        (["ps = ['a', 'b']", "check_call(['pip', 'install'] + ps)"], ["a", "b"]),
        (["check_call(['pip', 'install', *['a', 'b']])"], ["a", "b"]),
        (["for p in ['a b==1', 'c']:\n    run(['pip', 'install'] + p.split())"], ["a", "b==1", "c"]),
        (["ps = 'a b'", "!pip install $ps"], ["a", "b"]),
        (["ps = ['a', 'b']", "!pip install {' '.join(ps)}"], ["a", "b"]),
        (["p = 'c'", "for p in ['a', 'b']:\n    !apt install {p}\n    !pip install {p}"], ["a", "b"]),
        (["for p in ['a', name()]:\n    !pip install {p}"], ["# {p} (a part of it is a Python expression)"]),
        (["for p in ps:\n    !pip install {p}"], ["# {p} (a part of it is a Python expression)"]),
        (["p = p", "!pip install {p}"], ["# {p} (a part of it is a Python expression)"]),
        (["p = 'a'\nprint 1\np = f()", "!pip install {p}"], ["# {p} (a part of it is a Python expression)"]),
        (["def f(p):\n    !pip install {p}\nf('a')"], ["# {p} (a part of it is a Python expression)"]),
        (["%%bash\np=a\npip install $p"], ["# $p (a part of it is a Python expression)"]),
    ],
)  # fmt: skip
def test_packages_that_a_variable_names_are_listed(cells, lines):
    assert _python(*cells) == lines


def test_options_are_first_and_unique():
    assert _python(
        "!pip install x -i https://example.org/simple --pre",
        "!pip install y --extra-index-url=https://example.org/simple -f https://example.org/w.html -f wheels "
        "--trusted-host example.org --index-url https://pypi.org/simple --extra-index-url {url}",
    ) == [
        "--extra-index-url https://example.org/simple",
        "--find-links https://example.org/w.html",
        "--trusted-host example.org",
        "x>=0.dev0",
        "y",
        "# --find-links wheels (a folder or file: run the cell that installs it)",
        "# --extra-index-url {url} (a part of it is a Python expression)",
    ]


def test_a_second_command_on_the_line_is_no_package():
    assert _python("!pip install a!pip install b") == ["b", "# a!pip (pip does not accept it)"]


def test_a_line_of_python_after_a_command_names_no_package():
    text = "!pip install trlfrom datasets import load_dataset"
    assert _python(text) == [f"# {text[1:]} (a line of Python is joined to it)"]
    assert _python("!pip install os x\nimport json, x") == ["x", "# os (is part of Python)"]


def test_passwords_of_an_index_are_not_written():
    lines = _python("!pip install x --extra-index-url https://me:s3cr3t@example.org/simple")
    assert lines == ["x", "# --extra-index-url https://example.org/simple (needs credentials)"]


@pytest.mark.parametrize(
    "commands, lines",
    [
        (["x==1", "y", "x==2"], ["x==2  # earlier in the notebook: x==1", "y"]),
        (["x==1", "x==2", "x==1"], ["x==1  # earlier in the notebook: x==2"]),
        (["x==1", "X_", "x"], ["x==1", "# X_ (pip does not accept it)"]),
        (["a-b==1", "A_B==1"], ["A_B==1  # earlier in the notebook: a-b==1"]),
        (["x", "x==1"], ["x==1"]),
        (["x==1", "x"], ["x==1"]),
        (["x==1", "-U x"], ["x  # earlier in the notebook: x==1"]),
        (["x==1", "'x[a]'"], ["x[a]==1"]),
        (["x==1", "git+https://a.org/a/x.git"], ["git+https://a.org/a/x.git  # earlier in the notebook: x==1"]),
        (["'x==1; python_version<\"3\"'", "'x==2; python_version>=\"3\"'"],
         ['x==1; python_version<"3"', 'x==2; python_version>="3"']),
        (["--no-deps x==1", "x==1"], ["x==1"]),
    ],
)  # fmt: skip
def test_a_package_is_listed_once_with_its_latest_version(commands, lines):
    assert _python(*(f"!pip install {command}" for command in commands)) == lines


def test_system_packages_are_listed():
    found = _collect(
        "!apt-get -qq install -y x libfoo2=1.2-3 > /dev/null",
        "!apt update && sudo apt install x y/stable ./z.deb\n!add-apt-repository ppa:a/b",
        "%%bash\napt-get update\napt-get install -y -t focal w",
        "os.system('apt-get install v'); subprocess.run(['apt', 'install', 'u', name])",
        "!apt-get install $t\n!apt-get remove s",
    )
    assert found.python == ()
    assert found.system == (
        "x",
        "libfoo2=1.2-3",
        "y/stable",
        "# sudo apt install x y/stable ./z.deb (no package by name)",
        "# add-apt-repository ppa:a/b (adds a package source)",
        "w",
        "v",
        "u",
        "# apt install u {name} (no package by name)",
        "# apt-get install $t (no package by name)",
    )


def test_packages_of_conda_are_reported_in_a_comment():
    assert _python("!conda install -y \\\n  -c conda-forge x=1") == [
        "# conda install -y -c conda-forge x=1 (pip cannot install it)"
    ]


def test_the_requirements_file_is_valid_for_pip(tmp_path):
    found = _collect(
        "!pip install 'x[a]==1.0; python_version>\"3\"' y>=2 -f https://example.org/w.html --pre z=={v} .",
        "!pip install y==3 --no-deps -e git+https://example.org/a/b#egg=b 'w @ https://example.org/w-1-py3-none-any.whl'",
        "!pip install 'a\u2028b' d==1\n!apt install e\nos.system(\"pip install 'f\\\\ng'\")",
    )
    text = requirements_text(found)
    assert [str(requirement.req) for requirement in _accepted(text, tmp_path)] == [
        "x[a]==1.0",
        "y==3",
        "b",
        "w@ https://example.org/w-1-py3-none-any.whl",
        "d==1",
    ]
    assert text.startswith("# ")
    assert text.endswith("(pip does not accept it)\n")
    assert system_text(found).splitlines()[1:] == ["e"]
    assert requirements_text(Requirements()) == system_text(Requirements()) == ""


def test_preinstalled_modules_are_named_by_package():
    found = _python(
        "from sklearn.svm import SVC",
        "import numpy as np, cv2\nfrom more_itertools import chunked\nfrom datasets.load import x\nimport umap",
        "    import yaml  # why",
        "!pip install numpy==1.26",
    )
    assert found == [
        "numpy==1.26",
        "# Imported or called by the notebook, and installed on Colab:",
        "PyYAML",
        "datasets",
        "more-itertools",
        "opencv-python",
        "scikit-learn",
        "umap-learn",
    ]


@pytest.mark.parametrize(
    "texts",
    [
        ["import os, sys\nfrom google.colab import drive\nimport landfall_runtime"],
        ["import models_of_mine\nfrom utils import x"],  # another package on the index may have that name
        ["%%writefile /content/seaborn.py\nx = 1", "import seaborn"],
        ["!pip install opencv-contrib-python==4", "import cv2"],
        ["!pip install git+https://github.com/huggingface/transformers", "import transformers"],
        ["text = 'import numpy'"],
        ["!git clone https://a.org/b.git\n%cd b", "from datasets.augmentations import x"],
        ["!git clone https://a.org/b.git\n%cd b", "from datasets import get_batches, get_dataset"],
        ["!wget https://a.org/seaborn.py", "import seaborn"],
        ["open('lib/seaborn/__init__.py')", "import seaborn.colors"],
    ],
)
def test_standard_modules_get_no_line(texts):
    assert not any(line.startswith("# Imported") for line in _python(*texts))


@pytest.mark.parametrize(
    "text, packages",
    [
        ("from torch.utils.tensorboard import SummaryWriter", ["tensorboard", "torch"]),
        ("from keras.models import Sequential", ["keras", "tensorflow"]),
        ("import keras\nimport torch", ["keras", "tensorflow", "torch"]),
        ("os.environ['KERAS_BACKEND'] = backend\nimport keras, torch", ["keras", "torch"]),
        ("os.environ['KERAS_BACKEND'] = 'jax'\nimport keras", ["jax", "keras"]),
        ("%env KERAS_BACKEND=torch\nimport keras", ["keras", "torch"]),
        ("# KERAS_BACKEND = 'jax'\nimport keras", ["keras", "tensorflow"]),
        ("!pip install tensorflow-cpu\nimport keras", ["keras"]),
        ("from transformers import pipeline", ["torch", "transformers"]),
        ("from transformers import AutoModel\nimport tensorflow", ["tensorflow", "transformers"]),
        ("from transformers import AutoTokenizer", ["transformers"]),
        ("from tqdm.notebook import tqdm", ["ipywidgets", "tqdm"]),
        ("frame = pandas.read_excel('a.xlsx')", ["openpyxl"]),
        ("from tensorflow.keras.preprocessing import image\nimage.load_img('a')", ["pillow", "tensorflow"]),
        ("keras.ImageDataGenerator(rescale=1)", ["pillow", "scipy"]),
        ("!pip install fastparquet\nframe.to_parquet('a')", []),
        ("# frame.to_parquet('a')", []),
        ("import pandas\npandas.Series([1]).value_counts().plot.barh()", ["matplotlib", "pandas"]),
        ("import pandas\nframe.hist()", ["matplotlib", "pandas"]),
        ("import pandas\nframe.style.format('a')", ["jinja2", "pandas"]),
        ("import pandas\nframe.corr(method='kendall')", ["pandas", "scipy"]),
        ("import pandas\npandas.read_excel('a.xls')", ["openpyxl", "pandas", "xlrd"]),
        ("model.plot(a)\nframe.hist()\nmodel.style.format(a)", []),
        ("%matplotlib inline", ["matplotlib"]),
        ("import bs4\nbs4.BeautifulSoup(text, 'lxml')", ["beautifulsoup4", "lxml"]),
        ("import imageio\nimageio.get_writer(name + '.mp4', fps=1)", ["imageio", "imageio-ffmpeg"]),
        ("import imageio\nname = 'a.mp4'\nwith imageio.get_writer(name) as f: pass", ["imageio", "imageio-ffmpeg"]),
        ("!pip install imageio[ffmpeg]\nimport imageio\nimageio.get_reader('a.mp4')", []),
        ("import imageio\nimageio.mimsave('a.gif', b)", ["imageio"]),
        ("from transformers import T5Tokenizer", ["sentencepiece", "transformers"]),
        ("from transformers import T5TokenizerFast", ["transformers"]),
        ("import transformers\nload('a', device_map='auto')", ["accelerate", "transformers"]),
        ("!pip install trl\nimport transformers\nload('a', device_map='auto')", ["transformers"]),
        ("from datasets import Dataset, load_dataset", ["datasets"]),
        ("from datasets import (\n    load_dataset,\n)", ["datasets"]),
        ("from tensorflow.keras.utils import plot_model", ["pydot", "tensorflow"]),
        ("plot_model(model, to_file='a.png')", ["pydot"]),
        ("from pycaret.classification import *\nplot_model(model)", []),
        ("xgb.plot_tree(model)", ["graphviz"]),
    ],
)
def test_packages_that_a_call_needs_are_listed(text, packages):
    lines = _python(text)
    _, _, listed = "\n".join(lines).partition("# Imported or called by the notebook, and installed on Colab:\n")
    assert listed.splitlines() == packages


def test_a_package_that_is_edited_where_it_is_installed_is_listed():
    text = "!sed -i s/a/b/ /usr/lib/python3/dist-packages/distributed/__init__.py"
    assert _python(text, "import distributed")[-1] == "distributed"


def test_models_of_spacy_are_named_where_nothing_installs_them():
    load = "import spacy\nnlp = spacy.load('en_core_web_sm')\n# spacy.load('de_core_news_sm')"
    assert _python(load)[-2:] == ["spacy", "# a model of spaCy: python -m spacy download en_core_web_sm"]
    assert _python("!python -m spacy download en_core_web_sm", load)[-1] == "spacy"


@pytest.mark.parametrize(
    "module, package",
    [
        ("pyspark.sql", "pyspark"),
        ("firebase_admin", "firebase-admin"),
        ("ibis", "ibis-framework"),
        ("vertexai.preview", "google-cloud-aiplatform"),
        ("google.cloud.pubsub_v1", "google-cloud-pubsub"),
        ("snowflake.connector", "snowflake-connector-python"),
        ("cupy", "cupy-cuda12x"),
        ("netCDF4", "netcdf4"),
    ],
)
def test_a_preinstalled_module_is_named_by_its_package(module, package):
    assert _python(f"import {module}")[1:] == [package]
    assert _python(f"!pip install {package}", f"import {module}") == [package]


def test_tables_of_modules_have_no_entry_twice():
    assert not {normal_name(name) for name in OTHER_NAMES} & SAME_NAME


def test_google_subpackages_are_separate_packages():
    lines = _python("from google.cloud import bigquery, storage\nimport google.generativeai as genai\nimport google")
    assert lines[1:] == ["google-cloud-bigquery", "google-cloud-storage", "google-generativeai"]


def test_a_requirement_file_from_imports_is_valid_for_pip(tmp_path):
    names = [str(found.req) for found in _accepted(requirements_text(_collect("import numpy, PIL, skimage")), tmp_path)]
    assert names == ["numpy", "pillow", "scikit-image"]


def test_commands_of_preinstalled_packages_are_listed():
    cells = ["!gdown --id x && jupyter nbconvert a.ipynb", "%%bash\nhf download y", "!./kaggle\n#!wandb login"]
    called = ["gdown", "huggingface-hub", "nbconvert"]
    assert _python(*cells) == ["# Imported or called by the notebook, and installed on Colab:", *called]
    assert _python(*cells, "!pip install gdown==5 huggingface_hub nbconvert") == [
        "gdown==5", "huggingface_hub", "nbconvert"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("%load_ext tensorboard", "tensorboard"),
        ("if True:\n    %reload_ext tensorboard.notebook", "tensorboard"),
        ("%tensorboard --logdir runs", "tensorboard"),
        ("get_ipython().run_line_magic('load_ext', 'tensorboard')", "tensorboard"),
        ("get_ipython().magic('load_ext tensorboard')", "tensorboard"),
        ("%load_ext rpy2.ipython", "rpy2"),
        ("%load_ext Cython", "cython"),
        ("%load_ext google.cloud.bigquery", "google-cloud-bigquery"),
        ("%load_ext sql", "ipython-sql"),
        ("%load_ext cudf.pandas", "cudf-cu12"),
    ],
)
def test_packages_of_extensions_are_listed(text, package):
    assert _python(text)[1:] == [package]


@pytest.mark.parametrize(
    "texts",
    [
        ["%load_ext autoreload\n%autoreload 2"],
        ["%load_ext IPython.extensions.storemagic"],
        ["%load_ext google.colab.data_table"],
        ["# %load_ext tensorboard"],
        ["text = '%load_ext tensorboard'"],
        ["%%writefile a.py\n%load_ext tensorboard"],
        ["%%writefile sql.py\nx = 1", "%load_ext sql"],
        ["!pip install jupysql", "%load_ext sql"],
        ["!pip install tensorboard==2", "%load_ext tensorboard"],
    ],
)
def test_other_extensions_get_no_line(texts):
    assert not any(line.startswith("# Imported") for line in _python(*texts))


def test_extras_of_several_lines_are_united():
    assert _python("!pip install x[a]", "!pip install x[b,c]", "!pip install x") == ["x[a,b,c]"]
    assert _python("!pip install x[a]", "!pip install x[b]==1")[0].startswith("x[a,b]==1")
    assert _python("!pip install x[a]", "!pip install 'x[a] @ https://h/y.zip'") == ["x[a] @ https://h/y.zip"]


def test_arbitrary_equality_is_accepted(tmp_path):
    lines = _collect("!pip install x===0.9.0 y===1.0+cu1")
    assert list(lines.python) == ["x===0.9.0", "y===1.0+cu1"]
    assert len(_accepted(requirements_text(lines), tmp_path)) == 2


def test_packages_that_work_on_colab_only_are_not_listed():
    text = "!pip install Google-Colab-Transfer condacolab google-colab kora tqdm\nimport colab_transfer, kora"
    assert _python(text) == ["tqdm"]


@pytest.mark.parametrize(
    "text, package",
    [
        ("!ffmpeg -i a.mp4 a.wav", "ffmpeg"),
        ("!yt-dlp -x {url}", "ffmpeg"),
        ("cmd = f'/usr/bin/ffmpeg -i {a}'\nsubprocess.call(cmd, shell=True)", "ffmpeg"),
        ("os.system('npx degit https://github.com/a/b temp')", "npm"),
        ("!npm install -g a", "npm"),
        ("!node a.js", "nodejs"),
        ("!git lfs install", "git-lfs"),
        ("%%bash\nfor f in *.mp4; do ffmpeg -i $f; done", "ffmpeg"),
        ("subprocess.run(['ffprobe', name])", "ffmpeg"),
        ("from pydub import AudioSegment", "ffmpeg"),
        ("!pip install ffmpeg-python", "ffmpeg"),
        ("!pip install git+https://github.com/openai/whisper.git", "ffmpeg"),
        ("HTML(anim.to_html5_video())", "ffmpeg"),
        ("anim.save('a.mp4', fps=30)", "ffmpeg"),
        ("!dot -Tpng a.dot -o a.png", "graphviz"),
        ("from graphviz import Digraph", "graphviz"),
        ("tf.keras.utils.plot_model(model)", "graphviz"),
        ("from pyspark.sql import SparkSession", "default-jdk-headless"),
        ("!7z x a.7z", "p7zip-full"),
        ("!g++ -O2 a.cpp && ./a.out", "build-essential"),
        ("version = subprocess.check_output(['nvcc', '--version'])", "nvidia-cuda-toolkit"),
        ("!nvcc -o a a.cu && ./a", "nvidia-cuda-toolkit"),
        ("import pytesseract", "tesseract-ocr"),
        ("%load_ext rpy2.ipython", "r-base-core"),
        ("from osgeo import gdal", "libgdal-dev"),
    ],
)
def test_packages_of_the_system_that_colab_has_are_listed(text, package):
    found = _collect(text)
    assert found.system == ("# Imported or called by the notebook, and installed on Colab:", package)
    assert system_text(found).splitlines()[-1] == package


@pytest.mark.parametrize(
    "texts",
    [
        ["!apt-get install ffmpeg", "!ffmpeg -i a.mp4"],
        ["!apt-get install openjdk-8-jdk-headless", "import pyspark"],
        ["!apt-get install p7zip=16", "!7z x a.7z"],
        ["!apt-get install cuda-nvcc-12-4", "!nvcc a.cu"],
        ["!apt-get install nodejs", "!npx a"],
        ["!apt-get install tesseract-ocr-deu", "import pytesseract"],
    ],
)
def test_packages_of_the_system_that_a_cell_installs_are_listed_once(texts):
    assert len(_collect(*texts).system) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# !ffmpeg -i a.mp4",
        "!which ffmpeg; echo make",
        "!nvcc --version",
        "! java -version\n!node -v",
        "x = 'ffmpeg'",
        "#anim.save('a.mp4')",
        "dot = a.dot(b)\n!ls",
        "figure.save('a.mp4')",
        "%%writefile graphviz.py\nimport graphviz",
    ],
)
def test_other_names_of_programs_need_no_package(text):
    assert _collect(text).system == ()


def test_a_module_of_the_notebook_needs_no_package_of_the_system():
    assert _collect("%%writefile whisper.py\nx = 1", "import whisper").system == ()


def test_gdal_is_installed_in_the_version_of_the_library_of_the_system():
    assert [line[:6] for line in _python("import numpy\nfrom osgeo import gdal")[1:]] == ["# GDAL", "numpy"]
    assert _python("!pip install gdal", "from osgeo import gdal") == ["gdal"]


@pytest.mark.parametrize("line", ["%tensorflow_version 1.x", "% tensorflow_version 1.14", "tensorflow_version 1.x"])
def test_tensorflow_1_is_required_where_the_notebook_chooses_it(line, tmp_path):
    found = _collect(line, "import tensorflow as tf")
    lines = [str(one.req) for one in _accepted(requirements_text(found), tmp_path)]
    assert lines == ["tensorflow<2", "tensorflow"]
    assert [one.partition(";")[2].split()[0] for one in found.python[1:]] == [
        'python_version<"3.8"', 'python_version>="3.8"'
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["%tensorflow_version 2.x", "# %tensorflow_version 1.x", "x = 1"])
def test_tensorflow_2_is_required_otherwise(line):
    assert _python(line, "import tensorflow as tf")[1:] == ["tensorflow"]


def test_an_import_in_a_text_that_is_a_statement_is_not_required():
    assert _python('"""\nimport scipy\n"""\nimport numpy')[1:] == ["numpy"]
    assert _python('def f():\n    """\n    import scipy\n    """')[1:] == []
    assert _python('code = """\nimport scipy\n"""')[1:] == ["scipy"]
