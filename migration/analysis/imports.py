"""Packages that a notebook imports, loads or calls and that are preinstalled on Colab, by their pip names, and those of
the system."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from migration import shell
from migration.analysis.preinstalled import OTHER_NAMES, PROGRAMS, SAME_NAME, SYSTEM_PACKAGES
from migration.notebook.texts import Trigger, holding
from migration.python.source import CellSource
from migration.python.strings import only_code, outside_comments, without_comments

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
_PROGRAMS = sorted({*PROGRAMS, "nbconvert"}.union(*(programs for programs, *_ in SYSTEM_PACKAGES.values())))
CALLS_PROGRAM = holding(
    *("!", "%", "system", "subprocess", "open(", "run(", "call("),
    like=rf"(?<![\w.-])(?:{'|'.join(map(re.escape, _PROGRAMS))}|git[ \t]+lfs"
    r"|python[\d.]*[ \t]+(?:-\w+[ \t]+)*-m)(?![\w-])",
)
"""Trigger for cells that may call a preinstalled program."""
_MODULE = re.compile(r"(?:-\w+ )*?-m (\S+)")
_LOADS_EXTENSION = frozenset({"load_ext", "reload_ext"})
_CALLS_LOAD = re.compile(
    r"""\.(?:run_line_)?magic\(\s*["']%?(?:re)?load_ext(?:["']\s*,\s*["']|[ \t]+)(?P<name>[\w.]+)"""
)
# Modules whose parts decide which package has them.
_BY_NAME = frozenset({"datasets", "google", "google.cloud"})
# A package with the name of a usual folder of a repository, and its parts: any other one is a file there.
_OF_DATASETS = re.compile(
    r"datasets\.(?:arrow_\w+|builder|combine|config|data_files|dataset_dict|distributed|download|exceptions|features|"
    r"filesystems|fingerprint|formatting|hub|info|inspect|io|iterable_dataset|load|naming|packaged_modules|search|splits|"
    r"streaming|table|tasks|utils|[A-Z]\w*|load_\w+|list_\w+|(?:concatenate|interleave)_datasets|(?:dis|en)able_\w+|"
    r"get_dataset_\w+)\b"
)
_SETS_BACKEND = r"\b(?:KERAS_BACKEND|keras\.config\.set_backend)\b"
_KERAS_BACKENDS = frozenset({"jax", "tensorflow", "torch"})
# Packages that an import or a call needs and that pip does not install with its package: the packages that the code is
# of, if any, the code that needs them, and packages that may take their place. Those of pandas are the optional ones of
# https://pandas.pydata.org/docs/getting_started/install.html that Colab has.
_VIDEO = r"\.(?:mp4|m4v|mov|avi|mkv|webm|wmv|mpe?g)\b"
_IMAGEIO = r"\b(?:get_(?:writer|reader)|mim(?:save|write|read)|imiter|imopen|iio\.im(?:read|write))\("
_ALSO_NEEDED = tuple(
    (package, frozenset(of.split()), holding(*words.split(), like=pattern), frozenset(others))
    for of, package, words, pattern, *others in (
        (
            *("pandas geopandas xarray", "matplotlib", ".plot .hist( .boxplot( plotting"),
            r"\.plot[.(]|\.(?:hist|boxplot)\(|\bp(?:andas|d)\.plotting\b",
        ),
        ("", "matplotlib", "%matplotlib", r"^[ \t]*%matplotlib\b"),
        ("", "ipympl", "%matplotlib", r"^[ \t]*%matplotlib[ \t]+(?:widget|ipympl)\b"),
        *(
            ("pandas", package, words, pattern)
            for package, words, pattern in (
                (
                    *("jinja2", ".style .to_latex("),
                    r"\.style\s*\.\s*(?!(?:use|context|available|library|core)\b)\w|\.to_latex\(",
                ),
                ("tabulate", ".to_markdown(", r"\.to_markdown\("),
                (
                    *("scipy", ".interpolate( .corr kind .plot."),
                    r"\.interpolate\([^)\n]*[\"'](?:nearest|zero|slinear|quadratic|cubic|barycentric|krogh|polynomial|"
                    r"spline|pchip|akima|cubicspline|from_derivatives)[\"']|\.corr(?:with)?\([^\n]*[\"'](?:kendall|spearman)"
                    r"[\"']|\bkind[ \t]*=[ \t]*[\"'](?:kde|density)[\"']|\.plot\.(?:kde|density)\(",
                ),
                ("xarray", ".to_xarray(", r"\.to_xarray\("),
                ("xlrd", "read_excel( ExcelFile(", r"\b(?:read_excel|ExcelFile)\([^\n]*(?:\.xls[\"']|[\"']xlrd[\"'])"),
                ("lxml", ".to_xml(", r"\.to_xml\("),
                ("beautifulsoup4", "read_html(", r"\bread_html\([^\n]*[\"'](?:bs4|html5lib)[\"']"),
                ("html5lib", "read_html(", r"\bread_html\([^\n]*[\"'](?:bs4|html5lib)[\"']"),
                ("sqlalchemy", "sql", r"\b(?:read_sql\w*|to_sql)\([^\n]*\w://"),
                ("pyarrow", "_orc( pyarrow", r"\b(?:read|to)_orc\(|[\"'](?:string\[)?pyarrow\]?[\"']"),
                ("pandas-gbq", "_gbq(", r"\b(?:read|to)_gbq\("),
                ("gcsfs", "gs://", r"\b(?:read|to)_\w+\([^\n]*[\"']gs://"),
                ("zstandard", ".zst", r"\b(?:read|to)_\w+\([^\n]*\.zst[\"']"),
            )
        ),
        ("beautifulsoup4", "lxml", "BeautifulSoup(", r"\bBeautifulSoup\([^\n]*[\"'](?:lxml(?:-xml)?|xml)[\"']"),
        ("beautifulsoup4", "html5lib", "BeautifulSoup(", r"\bBeautifulSoup\([^\n]*[\"']html5lib[\"']"),
        ("", "ipywidgets", "tqdm", r"\btqdm\.notebook\b|\btqdm_notebook\b"),
        ("", "lxml", "read_html read_xml", r"\bread_(?:html|xml)\("),
        ("qrcode", "pillow", "qrcode", r"\bqrcode\.make\(|\.make_image\(", "qrcode[pil]"),
        ("", "pillow", "load_img ImageDataGenerator", r"[.\t ]load_img\b|\bImageDataGenerator\b"),
        ("", "scipy", "ImageDataGenerator", r"\bImageDataGenerator\b"),
        (
            *("", "graphviz", "plot_tree to_graphviz create_tree_digraph"),
            r"\b(?:xgb|xgboost|lgb|lightgbm)\.plot_tree\(|\bto_graphviz\(|\bcreate_tree_digraph\(",
        ),
        ("", "openpyxl", "_excel ExcelWriter", r"\b(?:read_excel|to_excel|ExcelWriter)\("),
        ("", "pyarrow", "_feather _parquet", r"\b(?:read|to)_(?:feather|parquet)\(", "fastparquet"),
        (
            *("", "pydot", "plot_model model_to_dot"),
            r"\bkeras\b[^\n]*\bplot_model\b|\bplot_model\([^\n]*\b(?:show_\w+|to_file)[ \t]*=|\bmodel_to_dot\b",
        ),
        ("", "tables", "_hdf HDFStore", r"\b(?:read_hdf|to_hdf|HDFStore)\("),
        ("", "tensorboard", "torch.utils.tensorboard", r"\btorch\.utils\.tensorboard\b"),
        *(("keras", name, "_BACKEND set_backend", rf"{_SETS_BACKEND}\W+{name}\b") for name in _KERAS_BACKENDS),
        (
            *("imageio", "imageio-ffmpeg", ".mp4 .m4v .mov .avi .mkv .webm .wmv .mpg .mpeg"),
            rf"{_IMAGEIO}[\s\S]*{_VIDEO}|{_VIDEO}[\s\S]*{_IMAGEIO}",
            *("av", "imageio[ffmpeg]"),
        ),
        (
            *("", "torch", "transformers"),
            r"\bfrom[ \t]+transformers[ \t]+import\b[^\n]*\b(?:AutoModel\w*|Trainer|pipeline)\b",
            *("tensorflow", "jax", "flax", "accelerate", "sentence-transformers"),
        ),
        (
            *("transformers diffusers", "accelerate", "device_map load_in_ TrainingArguments"),
            r"\bdevice_map[\"']?[ \t]*[=:]|\bload_in_[48]bit\b|\b(?:Seq2Seq)?TrainingArguments\b",
            *("peft", "trl", "unsloth", "transformers[torch]"),
        ),
        # The classes of transformers/utils/dummy_sentencepiece_objects.py.
        (
            *("transformers", "sentencepiece", "Tokenizer"),
            r"\b(?:Albert|Barthez|BertGeneration|BigBird|Camembert|CodeLlama|Cpm|DebertaV2|ErnieM|FNet|GPTSw3|Gemma|LayoutXLM|"
            r"Llama|M2M100|MBart|MBart50|MLuke|MT5|Marian|Nllb|PLBart|Pegasus|Reformer|RemBert|SeamlessM4T|Siglip|Speech2Text|"
            r"SpeechT5|T5|Udop|XGLM|XLMProphetNet|XLMRoberta|XLNet)Tokenizer\b",
            "transformers[sentencepiece]",
        ),
    )
)
_SETS_ANY_BACKEND = holding("_BACKEND", "set_backend", like=_SETS_BACKEND)
_IMPORTS_KERAS = holding("keras", like=r"^[ \t]*(?:from|import)[ \t]+keras\b")
# Code that needs ffmpeg.
_SAVES_VIDEO = holding(
    *("html5_video", "FFMpeg", "ffmpeg", ".mp4"),
    like=r"\bto_html5_video\(|\bFFMpeg(?:File)?Writer\b|\bwriters?[ \t]*[=\[][ \t]*[\"']ffmpeg|"
    r"\bani\w*\.save\([^)\n]*\.mp4\b",
)
_CHOOSES_TENSORFLOW_1 = holding("tensorflow_version", like=r"^[ \t]*%?[ \t]*tensorflow_version[ \t]+1")
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
        for module in (*_modules(source), *_extensions(source))
        if module.partition(".")[0] not in own and (package := _package(module))
    }
    called = [(_called(command), _run_module(command)) for command in commands]
    found |= {package for program, module in called if (package := PROGRAMS.get(program) or _package(module))}
    used = found | known
    text = "\n".join(source.text for source in sources)
    found |= {
        package
        for package, of, code, others in _ALSO_NEEDED
        if (not of or of & used) and not others & used and code.fires(text) and _is_in(code, sources)
    }
    has_backend = _KERAS_BACKENDS & (found | known) and _is_in(_SETS_ANY_BACKEND, sources)
    if _is_in(_IMPORTS_KERAS, sources) and not has_backend:
        found.add("tensorflow")  # Keras has it as default
    return sorted(package for package in found if _any_build(package) not in known)


def _is_in(code: Trigger, sources: Sequence[CellSource]) -> bool:
    """Whether cells contain code outside of comments."""
    cells = (source for source in sources if source.is_python and code.fires(source.text))
    return any(code.fires(without_comments(source)) for source in cells)


def _any_build(package: str) -> str:
    """One name for all packages with the same module."""
    name = _BUILD.sub("", normal_name(package))
    return _VARIANTS.get(name, name)


def _called(command: shell.Command) -> str:
    """The program of a command, also in the system's folders, `jupyter-nbconvert` for `jupyter nbconvert`."""
    if command.program in ("git", "jupyter") and command.arguments:
        return f"{command.program}-{command.arguments[0].value}"
    return command.program if not command.is_of_other_environment else ""


def _run_module(command: shell.Command) -> str:
    """The module that `python -m module` runs, but pip; empty for other commands."""
    is_python = re.fullmatch(r"python[\d.]*", command.program) and not command.is_of_other_environment
    found = _MODULE.match(" ".join(word.value for word in command.arguments)) if is_python else None
    return found[1] if found and found[1] != "pip" else ""


def spacy_models(sources: Sequence[CellSource]) -> list[str]:
    """The models that cells load with spaCy and do not name elsewhere, where they could install them; one is installed
    on Colab."""
    code = [without_comments(source) for source in sources if "spacy.load" in source.text]
    names = dict.fromkeys(found["name"] for text in code for found in _SPACY_MODEL.finditer(text))
    others = "\n".join(_SPACY_MODEL.sub("", source.text) for source in sources) if names else ""
    return [name for name in names if name not in others and name.replace("_", "-") not in others]


def system_packages(
    sources: Sequence[CellSource], commands: Iterable[shell.Command], python: Iterable[str], installed: Iterable[str]
) -> list[str]:
    """The packages of the system that Colab has, that cells or the packages `python` need, and that are not among the
    `installed` ones."""
    modules = {module.partition(".")[0] for source in sources for module in _modules(source)}
    names = {normal_name(name) for name in (*python, *(modules - _own_modules(sources)))}
    called, known = set(map(_called, commands)), set(installed)
    return [
        package
        for package, (programs, needed_by, others) in SYSTEM_PACKAGES.items()
        if programs & called or needed_by & names or (package == "ffmpeg" and _is_in(_SAVES_VIDEO, sources))
        if package not in known and not any(map(others.fullmatch, known))
    ]


def requests_tensorflow_1(sources: Sequence[CellSource]) -> bool:
    """Whether a cell chooses TensorFlow 1 with Colab's magic."""
    return _is_in(_CHOOSES_TENSORFLOW_1, sources)


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
    for match in _IMPORT.finditer(only_code(source)):
        if match["module"]:
            names = _DOTTED.findall(match["parts"]) if match["module"] in _BY_NAME else []
            yield from [f"{match['module']}.{name}" for name in names] or [match["module"]]
        else:
            for part in match["modules"].split(","):
                if name := _DOTTED.match(part.strip()):
                    yield name[0]


def _extensions(source: CellSource) -> Iterator[str]:
    """The modules that a cell loads as extensions of IPython, except IPython's own."""
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
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    if other := next(filter(None, map(OTHER_NAMES.get, names)), None):
        return other
    same = map(normal_name, names if top == "google" else [top])
    return next((name for name in same if name in SAME_NAME or _is_installed(name)), None)


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
