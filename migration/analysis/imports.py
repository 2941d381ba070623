"""Packages that a notebook imports, loads or calls and that are preinstalled on Colab, by their pip names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from migration import shell
from migration.notebook.texts import holding
from migration.python.source import CellSource
from migration.python.strings import outside_comments, without_comments

# Preinstalled on Colab; the pip name is the module name.
_SAME_NAME = frozenset(
    re.findall(
        r"\S+",
        """
    arch convertdate datascience ephem geemap glob2 h5netcdf httpimport httplib2 igraph jieba jsonpickle langcodes
    oauth2client palettable pydotplus pymystem3 pyproj sortedcontainers xlwt
    absl-py accelerate aiohttp albumentations altair anthropic arviz astropy autograd babel bigframes bleach
    blis blosc2 bokeh branca cachetools catalogue catboost certifi cffi chardet chex click cloudpickle cmdstanpy
    colorcet colorlover community confection contourpy cryptography cufflinks cupy cvxopt cvxpy cycler cython
    dask datasets decorator diffusers distributed dlib dm-tree docutils duckdb easydict editdistance einops
    etils fastai fastapi fastcore fastdownload fastprogress ffmpy filelock flask flax folium fsspec future
    fuzzywuzzy gast gdown gensim geopandas geopy gin gradio graphviz gspread gym gymnasium h5py holidays
    holoviews html5lib httpx huggingface-hub humanize hyperopt imageio imageio-ffmpeg imgaug imutils inflect
    ipyevents ipykernel ipython ipywidgets jax jaxlib jinja2 joblib jsonschema kaggle kagglehub keras kiwisolver
    langchain langsmith librosa lightgbm llvmlite locket lxml markdown markupsafe matplotlib matplotlib-venn
    missingno mizani mlxtend more-itertools moviepy mpl-toolkits mpmath msgpack multidict multiprocess music21
    narwhals natsort
    nbconvert nbformat networkx nibabel nltk numba numexpr numpy oauthlib openai openpyxl opt-einsum optax orbax
    osqp packaging pandas pandas-datareader pandas-gbq panel param partd patsy peewee peft pexpect pickleshare
    pip platformdirs plotly plotnine pluggy polars pooch portpicker prettytable proglog progressbar2 promise
    prophet psutil psycopg2 pyarrow pycocotools pycparser pydantic pydot pygame pygments pymc pymysql pyomo
    pyparsing pyperclip pytensor pytest pytz pyviz-comms qdldl regex requests rich rpy2 safetensors scipy scs
    seaborn sentence-transformers sentencepiece sentry-sdk setuptools shap shapely six smart-open
    snowballstemmer soundfile soxr spacy sqlalchemy sqlglot sqlparse srsly stanio statsmodels sympy tables
    tabulate tblib tenacity tensorboard tensorflow tensorflow-datasets tensorflow-gcs-config tensorflow-hub
    tensorflow-probability tensorstore termcolor text-unidecode textblob thinc threadpoolctl tifffile timm
    tinycss2 tokenizers toml tomlkit toolz torch torchao torchaudio torchdata torchsummary torchtext torchvision
    tornado tqdm transformers trax treelite treescope triton tweepy typer tzlocal ujson uritemplate urllib3
    uvicorn vega-datasets wandb wasabi wcwidth weasel webcolors websockets widgetsnbextension wordcloud wrapt
    xarray xarray-einstats xgboost xlrd yarl yellowbrick yfinance zict
    """,
    )
)
_OTHER_NAMES = {
    "Crypto": "pycryptodome",
    "IPython": "ipython",
    "PIL": "pillow",
    "OpenGL": "PyOpenGL",
    "absl": "absl-py",
    "googlesearch": "google",
    "apiclient": "google-api-python-client",
    "bs4": "beautifulsoup4",
    "community": "python-louvain",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "docx": "python-docx",
    "ee": "earthengine-api",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "gin": "gin-config",
    "google.api_core": "google-api-core",
    "google.auth": "google-auth",
    "google.cloud.aiplatform": "google-cloud-aiplatform",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.bigquery_storage": "google-cloud-bigquery-storage",
    "google.cloud.firestore": "google-cloud-firestore",
    "google.cloud.language": "google-cloud-language",
    "google.cloud.storage": "google-cloud-storage",
    "google.cloud.translate": "google-cloud-translate",
    "google.genai": "google-genai",
    "google.generativeai": "google-generativeai",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "google_auth_oauthlib": "google-auth-oauthlib",
    "googleapiclient": "google-api-python-client",
    "grpc": "grpcio",
    "imblearn": "imbalanced-learn",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "orbax": "orbax-checkpoint",
    "pandas_profiling": "pandas-profiling",
    "pkg_resources": "setuptools",
    "progressbar": "progressbar2",
    "psycopg2": "psycopg2-binary",
    "pydrive": "PyDrive",
    "pydrive2": "PyDrive2",
    "pylab": "matplotlib",
    "pywt": "PyWavelets",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "sklearn_pandas": "sklearn-pandas",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
# Packages that work on Colab only, by their modules: the pip name, the reason, and what to do.
ONLY_ON_COLAB = {
    "condacolab": (
        "condacolab",
        "condacolab installs conda on a Colab machine, and refuses to run elsewhere",
        "run the notebook in a kernel of a conda environment and delete what names condacolab",
    ),
    "colab_transfer": (
        "google-colab-transfer",
        "colab_transfer mounts the drive on a Colab machine, and copies files between Colab's folders only",
        "copy the files to the folder of the parameter `drive_dir` and delete what names colab_transfer",
    ),
    "kora": (
        "kora",
        "kora is made for Colab's machines: it imports google.colab, links its drive, and installs programs there",
        "install what the cells use of it by other means, such as selenium, and delete what names kora",
    ),
}
# Commands of packages that are preinstalled on Colab.
_PROGRAMS = {
    "accelerate": "accelerate",
    "earthengine": "earthengine-api",
    "gdown": "gdown",
    "hf": "huggingface-hub",
    "huggingface-cli": "huggingface-hub",
    "jupyter-nbconvert": "nbconvert",
    "kaggle": "kaggle",
    "tensorboard": "tensorboard",
    "torchrun": "torch",
    "transformers-cli": "transformers",
    "wandb": "wandb",
}
# Extensions of IPython that are preinstalled on Colab with a package of another name; other ones are modules.
_EXTENSIONS = {
    "bigquery_magics": "bigquery-magics",
    "cudf.pandas": "cudf-cu12",
    "cuml.accel": "cuml-cu12",
    "sql": "ipython-sql",
}
_LOADS_EXTENSION = frozenset({"load_ext", "reload_ext"})
_CALLS_LOAD = re.compile(
    r"""\.(?:run_line_)?magic\(\s*["']%?(?:re)?load_ext(?:["']\s*,\s*["']|[ \t]+)(?P<name>[\w.]+)"""
)
PROGRAM_WORDS = (*_PROGRAMS, "nbconvert")
"""A cell that calls one of the commands contains one of these words."""
# Modules whose parts decide which package has them.
_BY_NAME = frozenset({"datasets", "google", "google.cloud"})
# A package with the name of a usual folder of a repository, and its parts: any other one is a file there.
_OF_DATASETS = re.compile(
    r"datasets\.(?:arrow_\w+|builder|combine|config|data_files|dataset_dict|distributed|download|exceptions|features|"
    r"filesystems|fingerprint|formatting|hub|info|inspect|io|iterable_dataset|load|naming|packaged_modules|search|splits|"
    r"streaming|table|tasks|utils|[A-Z]\w*|load_\w+|list_\w+|(?:concatenate|interleave)_datasets|(?:dis|en)able_\w+|"
    r"get_dataset_\w+)\b"
)
# Packages that an import or a call needs and that pip does not install with its package: the code that needs them, and
# packages that may take their place.
_ALSO_NEEDED = {
    package: (holding(*words.split(), like=pattern), frozenset(others))
    for package, words, pattern, *others in (
        ("ipywidgets", "tqdm", r"\btqdm\.notebook\b|\btqdm_notebook\b"),
        ("lxml", "read_html read_xml", r"\bread_(?:html|xml)\("),
        ("pillow", "load_img ImageDataGenerator", r"[.\t ]load_img\b|\bImageDataGenerator\b"),
        ("scipy", "ImageDataGenerator", r"\bImageDataGenerator\b"),
        ("openpyxl", "_excel ExcelWriter", r"\b(?:read_excel|to_excel|ExcelWriter)\("),
        ("pyarrow", "_feather _parquet", r"\b(?:read|to)_(?:feather|parquet)\(", "fastparquet"),
        ("tables", "_hdf HDFStore", r"\b(?:read_hdf|to_hdf|HDFStore)\("),
        ("tensorboard", "torch.utils.tensorboard", r"\btorch\.utils\.tensorboard\b"),
        ("tensorflow", "keras", r"^[ \t]*(?:from|import)[ \t]+keras\b", "jax", "torch"),
        (
            *("torch", "transformers"),
            r"\bfrom[ \t]+transformers[ \t]+import\b[^\n]*\b(?:AutoModel\w*|Trainer|pipeline)\b",
            *("tensorflow", "jax", "flax", "accelerate", "sentence-transformers"),
        ),
    )
}
_SPACY_MODEL = re.compile(r"\bspacy\.load\(\s*[\"'](?P<name>[a-z]{2}_\w+_(?:sm|md|lg|trf))[\"']")
# Packages with the same module: other builds of one, and other names.
_BUILD = re.compile(
    r"(?:-(?:gpu|cpu|nightly|headless|binary|simd|macos|rocm|directml|openvino|silicon|cu\d+|cuda[\dx]*))+$"
)
_VARIANTS = {"opencv-contrib-python": "opencv-python", "tf": "tensorflow", "sklearn": "scikit-learn"}
_VARIANTS |= {"bs4": "beautifulsoup4", "jupysql": "ipython-sql"}
_IMPORT = re.compile(
    r"^[ \t]*(?:>>>[ \t]*)?(?:from[ \t]+(?P<module>[A-Za-z_][\w.]*)[ \t]+import[ \t]+(?P<parts>[^\n#;]*)"
    r"|import[ \t]+(?P<modules>[A-Za-z_][^\n#;]*))",
    re.MULTILINE,
)
_DOTTED = re.compile(r"[A-Za-z_][\w.]*")
_PYTHON_FILE = re.compile(
    r"(?<![\w./-])(?P<folders>[\w.{}$~/-]*/)?(?P<name>(?!__init__)[A-Za-z_]\w*)(?:\.py|/__init__\.py)\b"
)
_WRITES_MODULE = re.compile(r"^[ \t]*%%(?:writefile|file)[ \t]+(?:-a[ \t]+)?(?:\S*/)?(\w+)(?:\.py|/)", re.MULTILINE)


def preinstalled_packages(
    sources: Sequence[CellSource], commands: Iterable[shell.Command], installed: Sequence[str]
) -> list[str]:
    """The packages that cells import, load as extensions of IPython or call in `commands`, and no cell installs,
    sorted; `installed`: the installed ones. A module that is in no table and not installed here as a package of its
    name, such as a file of the notebook, is omitted: another package on the index could have its name."""
    known = {_any_build(name) for name in installed}
    own = _own_modules(sources)
    found = {
        package
        for source in sources
        for module in _modules(source)
        if module.partition(".")[0] not in own and (package := _package(module))
    }
    found |= {
        package
        for source in sources
        for name in _extensions(source)
        if name.partition(".")[0] not in own and (package := _EXTENSIONS.get(name) or _package(name))
    }
    found |= {package for command in commands if (package := _PROGRAMS.get(_called(command)))}
    found |= {
        package
        for package, (code, others) in _ALSO_NEEDED.items()
        if not others & (found | known)
        and any(
            code.fires(source.text) and code.fires(without_comments(source)) for source in sources if source.is_python
        )
    }
    return sorted(package for package in found if _any_build(package) not in known)


def _any_build(package: str) -> str:
    """One name for all packages with the same module."""
    name = _BUILD.sub("", normal_name(package))
    return _VARIANTS.get(name, name)


def _called(command: shell.Command) -> str:
    """The program of a command, `jupyter-nbconvert` for `jupyter nbconvert`."""
    if command.program == "jupyter" and command.arguments:
        return f"jupyter-{command.arguments[0].value}"
    return command.words[command.program_at].value if command.program_at < len(command.words) else ""


def spacy_models(sources: Sequence[CellSource]) -> list[str]:
    """The models that cells load with spaCy and do not name elsewhere, where they could install them; one is installed
    on Colab."""
    code = [without_comments(source) for source in sources if "spacy.load" in source.text]
    names = dict.fromkeys(found["name"] for text in code for found in _SPACY_MODEL.finditer(text))
    others = "\n".join(_SPACY_MODEL.sub("", source.text) for source in sources) if names else ""
    return [name for name in names if name not in others and name.replace("_", "-") not in others]


def imports_gdal(sources: Sequence[CellSource]) -> bool:
    """Whether cells import GDAL, which Colab has, and which pip builds against a library of the system."""
    return any(module.partition(".")[0] == "osgeo" for source in sources for module in _modules(source))


def _own_modules(sources: Sequence[CellSource]) -> set[str]:
    """Modules of the notebook: those that it writes, and Python files that it names."""
    written = {name for source in sources if "%%" in source.text for name in _WRITES_MODULE.findall(source.text)}
    return written | {
        found["name"]
        for source in sources
        if ".py" in source.text
        for found in _PYTHON_FILE.finditer(source.text)
        if "-packages/" not in (found["folders"] or "")
    }


def _modules(source: CellSource) -> Iterator[str]:
    """The dotted names in the import lines of a cell."""
    if source.language != "python" or "import" not in source.text:
        return
    for match in _IMPORT.finditer(source.text):
        if match["module"]:
            names = _DOTTED.findall(match["parts"]) if match["module"] in _BY_NAME else []
            yield from [f"{match['module']}.{name}" for name in names] or [match["module"]]
        else:
            for part in match["modules"].split(","):
                if name := _DOTTED.match(part.strip()):
                    yield name[0]


def _extensions(source: CellSource) -> Iterator[str]:
    """The extensions that a cell loads into IPython, except IPython's own."""
    if source.language != "python" or not ("load_ext" in source.text or "tensorboard" in source.text):
        return
    for command in source.commands if source.is_python else ():
        if command.kind == "magic" and command.name in _LOADS_EXTENSION:
            argument = source.text[command.body : command.end].strip().removeprefix(command.name)
            if (name := _DOTTED.match(argument.strip())) and not name[0].startswith("IPython."):
                yield name[0]
        elif command.kind == "magic" and command.name == "tensorboard":
            yield command.name
    yield from (found["name"] for found in outside_comments(source, _CALLS_LOAD) if "load_ext" in source.text)


@cache
def _package(module: str) -> str | None:
    """The pip name of a module; None for the standard library and for unknown modules."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or (top in ("landfall_runtime", "google") and "." not in module):
        return None
    parts = module.split(".")
    if top == "datasets" and len(parts) > 1 and not _OF_DATASETS.match(module):
        return None
    for count in range(len(parts), 0, -1):
        if name := _OTHER_NAMES.get(".".join(parts[:count])):
            return name
    name = normal_name(top)
    return name if name in _SAME_NAME or _is_installed(name) else None


def _is_installed(name: str) -> bool:
    """Whether a package on this machine has a module of its name."""
    try:
        found = distribution(name)
    except (PackageNotFoundError, ValueError):
        return False
    modules = (found.read_text("top_level.txt") or "").split() or [
        file.parts[0] for file in found.files or () if file.suffix == ".py"
    ]
    return name != "landfall" and name in (normal_name(module.removesuffix(".py")) for module in modules)


def normal_name(name: str) -> str:
    """The name of a package in the form in which two of them are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
