"""Local replacements for google.colab, for notebooks that `landfall migrate` converted.

One file without dependencies for Python 3.8 and newer: it is next to a migrated notebook, or is installed with
Landfall. Names, parameters and exceptions are those of Colab. Text that Colab prints is printed to stdout. Local
messages (the path of a download, a call without effect) are printed to stderr, so that stdout is the same as on Colab.

The notebook's set-up cell exports two folders: WORK_DIR replaces /content (default: the current folder), DRIVE_DIR
replaces "My Drive" (default: `drive` in the work folder). If a notebook uses these names itself, they are
LANDFALL_WORK_DIR and LANDFALL_DRIVE_DIR. Further variables, set by the user or by papermill:

    LANDFALL_UPLOAD      files that `files.upload()` returns: paths or glob patterns, separated like PATH, relative to
                         the work folder; set and empty: none. Unset: all files of the folder `uploads` in the work
                         folder, or, if it has none, the answer to a prompt. Of a notebook with several calls whose
                         files it uses, the first has the folder `uploads/1`, the second `uploads/2`, and so on.
    LANDFALL_DOWNLOADS   folder that `files.download()` copies to (`downloads` in the work folder).
"""

from __future__ import annotations

import contextlib
import filecmp
import importlib
import itertools
import os
import re
import shutil
import struct
import sys
import types
import warnings
import zlib
from pathlib import Path


def _say(text):
    """Prints what Colab prints too."""
    sys.stdout.write(text + "\n")


def _note(text):
    """Prints a local message."""
    sys.stderr.write(text + "\n")


def _display():
    """The module IPython.display. Raises ImportError with the command that installs it."""
    try:
        return importlib.import_module("IPython.display")
    except ImportError as error:
        raise ImportError("this call shows something in a notebook and needs IPython: pip install ipython") from error


def _nothing(*arguments, **options):
    """Does nothing: not needed on a local machine."""


def _folder(name, default):
    return Path(os.environ.get(f"LANDFALL_{name}") or os.environ.get(name) or default).absolute()


def _work_folder():
    return _folder("WORK_DIR", ".")


def _drive_folder():
    return _folder("DRIVE_DIR", _work_folder() / "drive")


def _existing(filename):
    """The absolute path of a file or folder. Raises FileNotFoundError."""
    if not Path(filename).exists():
        raise FileNotFoundError(f"Cannot find file: {filename}")
    return Path(filename).absolute()


def _copy(source, target, *, not_again=()):
    """Copies a file; if a different file has its name, as `name (1).ext`, `name (2).ext`, … Returns the path.

    A file of the same content stays as it is, unless its absolute path is in `not_again`.
    """
    path = target
    for number in itertools.count(1):
        if not (path.exists() or path.is_symlink()):
            shutil.copyfile(source, path)
            break
        if path.is_file() and filecmp.cmp(source, path, shallow=False) and path.absolute() not in not_again:
            break
        path = target.with_name(f"{target.stem} ({number}){target.suffix}")
    return path


def _module(namespace):
    """The members of a class body as a submodule, so that `from landfall_runtime.files import upload` works too."""
    module = types.ModuleType(f"{__name__}.{namespace.__name__}", namespace.__doc__)
    for name, value in vars(namespace).items():
        if not name.startswith("__"):
            setattr(module, name, value.__func__ if isinstance(value, staticmethod) else value)
    sys.modules[module.__name__] = module
    return module


@_module
class errors:
    """Colab's exceptions."""

    class Error(Exception):
        """Base of most others."""

    class AuthorizationError(Error):
        """There are no credentials."""

    class RuntimeManagementError(Error):
        """The runtime cannot be managed."""

    class WidgetException(Exception):
        """A widget is used wrongly."""


_uploaded = set()  # absolute paths that this process wrote as uploads


def _files_to_upload(paths=None, call=None):
    """Absolute paths of the files to upload, in the given order. Raises FileNotFoundError with a hint."""
    uploads = _work_folder() / "uploads" / ("" if call is None else str(call))
    if paths is None:
        paths = os.environ.get("LANDFALL_UPLOAD")
    if paths is None and uploads.is_dir() and any(map(Path.is_file, uploads.iterdir())):
        paths = [uploads]
    if paths is None:
        try:
            which = "" if call is None else f" by call {call}"
            paths = input(f"Files to upload{which} (paths or patterns, separated by {os.pathsep}): ")
        except (EOFError, NotImplementedError, OSError):  # not interactive
            raise FileNotFoundError(
                "files.upload() found no file: set the environment variable LANDFALL_UPLOAD to the files "
                f"(separated by {os.pathsep!r}), or put them into {uploads}"
            ) from None
    patterns = paths.split(os.pathsep) if isinstance(paths, str) else map(str, paths)
    return list(dict.fromkeys(path for pattern in patterns if pattern.strip() for path in _matching(pattern.strip())))


def _matching(pattern):
    """The files of a path, a pattern or a folder, except hidden ones. Raises FileNotFoundError."""
    asked = Path(pattern).expanduser()
    place = _work_folder() / asked
    if place.is_file():
        return [place]
    if place.is_dir():
        found = sorted(place.iterdir())
    else:
        root = Path(place.anchor) if asked.is_absolute() else _work_folder()
        found = sorted(root.glob(str(place.relative_to(root))))
    if not found:
        raise FileNotFoundError(f"files.upload() found no file {pattern!r} (searched for {place})")
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


@_module
class files:
    """Files from and to the user's own disk."""

    @staticmethod
    def upload(target_dir="", paths=None, call=None):
        """Copies the files to upload to `target_dir` (default: the current folder); returns {path: bytes}. `paths`:
        the files; by default those of the module's docstring. `call`: the number of the call, if each has a folder."""
        uploaded = {}
        for source in _files_to_upload(paths, call):
            target = Path(target_dir, source.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.exists() and target.samefile(source)):
                # Colab starts in an empty folder; here the upload of an earlier run is used again.
                target = _copy(source, target, not_again=_uploaded)
                _uploaded.add(target.absolute())
            _say(f"Saving {source.name} to {target}")
            uploaded[str(target)] = target.read_bytes()
        return uploaded

    @staticmethod
    def upload_file(filename, call=None):
        """Copies the file to upload to `filename`; `call` as for `upload`. Raises ValueError if there is none, or more
        than one."""
        sources = _files_to_upload(call=call)
        if not sources:
            raise ValueError("File has not been uploaded")
        if len(sources) > 1:
            raise ValueError("Multiple files received, please upload a single file")
        Path(filename).write_bytes(sources[0].read_bytes())
        _say(f"Saved {sources[0].name} to {Path.cwd()}/{filename}")

    @staticmethod
    def download(filename):
        """Copies a file to the downloads folder; an existing different file is kept. Raises OSError."""
        source = _existing(filename)
        if source.is_dir():
            raise IsADirectoryError(f"{filename} is a folder: make an archive of it first, with shutil.make_archive")
        folder = Path(os.environ.get("LANDFALL_DOWNLOADS") or _work_folder() / "downloads").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        _note(f"Downloaded to {_copy(source, folder / source.name)}")

    @staticmethod
    def view(filepath):
        """Prints the path of the file or folder. Raises FileNotFoundError."""
        _note(f"See {_existing(filepath)}")


_ENV_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<key>[\w.-]+)[ \t]*=[ \t]*
    (?:'(?P<raw>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)"|(?P<plain>[^\n]*?))[ \t]*(?:(?<!\S)\#[^\n]*)?$""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def _env_file(path):
    """The variables of a .env file: `KEY=value` with quotes, `export` and comments."""
    values = {}
    # Bytes that are not UTF-8 are kept, as in `os.environ`.
    for line in _ENV_LINE.finditer(path.read_text(encoding="utf-8-sig", errors="surrogateescape")):
        value = line["plain"] if line["raw"] is None else line["raw"]
        if line["escaped"] is not None:
            value = re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), line["escaped"], flags=re.DOTALL)
        values[line["key"]] = value
    return values


def _env_files():
    """The .env files of the current folder, of those above it up to the work folder, and of the work folder."""
    here, work = Path.cwd(), _work_folder().resolve()
    above = [folder for folder in [here, *here.parents] if folder == work or work in folder.parents]
    paths = [folder / ".env" for folder in dict.fromkeys([here, *above, work])]
    return [path for path in paths if path.is_file()]


@_module
class userdata:
    """Secrets: from the environment, else from a .env file."""

    class SecretNotFoundError(errors.Error, ModuleNotFoundError):
        """There is no such secret. Code that catches a missing `google.colab` then takes its own way, as without it."""

        def __init__(self, key):
            super().__init__(f"Secret {key} does not exist: set the environment variable {key}, or put it into .env")

    class NotebookAccessError(Exception):
        """Colab's error for a secret that is not shared with the notebook; not raised here."""

        def __init__(self, key):
            super().__init__(f"Notebook does not have access to secret {key}")

    class TimeoutException(errors.Error):
        """Colab's error for a page that does not answer; not raised here."""

        def __init__(self, key):
            super().__init__(f"Requesting secret {key} timed out")

    @staticmethod
    def get(key):
        """The secret's value. Raises SecretNotFoundError, and ValueError for a key that is not a valid name."""
        if not key or not isinstance(key, str):
            raise ValueError("Please enter a valid secret name")
        if re.search(r"\s", key):
            raise ValueError("Secret name cannot contain spaces or whitespace")
        for values in itertools.chain([os.environ], map(_env_file, _env_files())):
            if key in values:
                return values[key]
        raise userdata.SecretNotFoundError(key)


def _link(path, target):
    """Makes `path` a link to a folder; prints a message if the system refuses it."""
    try:
        path.symlink_to(target, target_is_directory=True)
    except OSError as error:
        _note(f"{path} could not become a link to the drive folder {_drive_folder()}: {error.strerror or error}")


def link_my_drive(folder):
    """Makes `folder/MyDrive` and `folder/My Drive` mean the folder itself, for code that appends either name."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in (Path(folder, "MyDrive"), Path(folder, "My Drive")):
        if not (path.exists() or path.is_symlink()):
            _link(path, ".")


@_module
class drive:
    """Google Drive: a local folder, DRIVE_DIR, with the content of "My Drive"."""

    @staticmethod
    def mount(mountpoint, force_remount=False, timeout_ms=120000, readonly=False):
        """Creates the drive folder, and a link to it at the mount point if that path is free."""
        folder, place = _drive_folder(), Path(mountpoint).expanduser().absolute()
        link_my_drive(folder)
        if place.is_dir() and not place.is_symlink() and not any(place.iterdir()):
            place.rmdir()
        if not (place.exists() or place.is_symlink()) and place.parent.is_dir():
            _link(place, folder)
        if place.resolve() == folder.resolve():
            _say(f"Mounted at {mountpoint}")
        else:
            _note(f"{mountpoint} is not the drive folder here, which is {folder} (environment variable DRIVE_DIR)")

    _mount = mount

    flush_and_unmount = staticmethod(_nothing)  # files are written to the local disk directly


def _has_credentials():
    """Whether there are application-default credentials: from the environment, gcloud, or google.auth."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if named:
        return Path(named).is_file()
    settings = Path(os.environ.get("APPDATA") or Path.home() / ".config")
    gcloud = Path(os.environ.get("CLOUDSDK_CONFIG") or settings / "gcloud")
    if (gcloud / "application_default_credentials.json").is_file():
        return True
    try:
        importlib.import_module("google.auth").default()
    except Exception:  # google.auth is not installed, or finds none (many error classes)
        return False
    return True


@_module
class auth:
    """Google credentials: this machine's application-default ones."""

    @staticmethod
    def authenticate_user(clear_output=True, project_id=None):
        """Does nothing if there are application-default credentials; otherwise warns with the command."""
        if project_id is not None:
            os.environ["GOOGLE_CLOUD_PROJECT"] = os.environ["GOOGLE_CLOUD_QUOTA_PROJECT"] = project_id
        if not _has_credentials():
            command = "gcloud auth application-default login"
            warnings.warn(f"no Google credentials on this machine; run in a terminal: {command}", stacklevel=2)

    @staticmethod
    def authenticate_service_account(clear_output=True):
        """Does nothing if there are credentials; otherwise warns."""
        if not _has_credentials():
            warnings.warn("set GOOGLE_APPLICATION_CREDENTIALS to the service account's key file", stacklevel=2)


def _png(pixels):
    """The PNG file of an array of bytes (height, width[, 1, 3 or 4 channels]): grey, RGB or RGBA."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    color_type = {1: 0, 3: 2, 4: 6}[pixels.shape[2] if pixels.ndim == 3 else 1]
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, color_type, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def cv2_imshow(a):
    """Shows an array (height, width[, channels]) in OpenCV's channel order: grey, BGR or BGRA, clipped to 0…255."""
    channels = a.shape[2] if a.ndim == 3 else 1
    if a.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise ValueError(f"an image has the shape (height, width[, 1, 3 or 4 channels]), this array has {a.shape}")
    pixels = a.clip(0, 255).astype("uint8")
    if channels > 1:
        pixels = pixels[:, :, [2, 1, 0, 3][:channels]]
    display = _display()
    display.display(display.Image(data=_png(pixels), format="png"))


@_module
class patches:
    """Replacements of functions that would open a window."""

    cv2_imshow = cv_imshow = staticmethod(cv2_imshow)


_formatters = {}  # by type; a plain table does not use them


@_module
class data_table:
    """Tables: a data frame shows itself."""

    class DataTable:
        """A data frame; Colab's options are accepted and ignored."""

        include_index, num_rows_per_page, max_rows, max_columns, min_width = True, 25, 20000, 20, None

        def __init__(self, dataframe, *options, **named_options):
            self._dataframe = dataframe

        def __repr__(self):
            return repr(self._dataframe)

        def _repr_html_(self):
            return self._dataframe._repr_html_()

    _DEFAULT_FORMATTERS = _formatters
    enable_dataframe_formatter = disable_dataframe_formatter = staticmethod(_nothing)
    load_ipython_extension = unload_ipython_extension = staticmethod(_nothing)


_callbacks = {}
_PROXY = re.compile(r"\bproxyPort\(\s*(\d+)")


def _local_url(port, path="/"):
    return f"http://localhost:{port}/{path.lstrip('/')}"


@_module
class output:
    """The output area; supports what a plain notebook can do."""

    @staticmethod
    def clear(wait=False, output_tags=()):
        """Clears the cell's output; with tags does nothing, because a plain notebook cannot clear a part."""
        if not output_tags:
            _display().clear_output(wait=wait)

    @staticmethod
    def eval_js(script, ignore_result=False, timeout_sec=None):
        """The local URL of a proxied port. Runs JavaScript without a result; raises MessageError for other scripts."""
        port = _PROXY.search(script)
        if port:
            return None if ignore_result else _local_url(port[1])
        if not ignore_result:
            raise _message.MessageError(
                "only Colab's page answers JavaScript; here use input(), ipywidgets, or files.upload() for a file"
            )
        if "google.colab" not in script:
            _display().display(_display().Javascript(script))
        return None

    @staticmethod
    def register_callback(function_name, callback):
        """Registers a function for `invoke_function`; no JavaScript calls it here."""
        _callbacks[function_name] = callback

    @staticmethod
    def unregister_callback(function_name):
        """Removes a function. Raises ValueError if it is not registered."""
        if _callbacks.pop(function_name, None) is None:
            raise ValueError(f"Callback function not registered: {function_name}.")

    @staticmethod
    def invoke_function(function_name, args=(), kwargs=None):
        """Calls a registered function as Colab's JavaScript does. Raises ValueError if it is not registered."""
        if function_name not in _callbacks:
            raise ValueError(f"Function not found: {function_name}")
        return _callbacks[function_name](*args, **(kwargs or {}))

    @staticmethod
    def serve_kernel_port_as_window(port, path="/", anchor_text=None, skip_warning=False):
        """Shows a link to a port of this machine."""
        url = _local_url(port, path)
        html = f'<a href="{url}" target="_blank">{anchor_text or url}</a>'
        _display().display({"text/html": html, "text/plain": url}, raw=True)

    @staticmethod
    def serve_kernel_port_as_iframe(port, path="/", width="100%", height="400", cache_in_notebook=False):
        """Shows a page that a port of this machine serves."""
        _display().display(_display().IFrame(_local_url(port, path), width, height))

    enable_custom_widget_manager = disable_custom_widget_manager = no_vertical_scroll = staticmethod(_nothing)

    @staticmethod
    @contextlib.contextmanager
    def use_tags(tags, append=True):
        """The tags are accepted and ignored."""
        yield {tags} if isinstance(tags, str) else set(tags)

    @staticmethod
    @contextlib.contextmanager
    def redirect_to_element(selector=None):
        """Outputs stay in the cell's own output."""
        yield

    to_header_area = to_footer_area = to_default_area = temporary = redirect_to_element


@_module
class runtime:
    """The machine that runs the notebook."""

    @staticmethod
    def unassign():
        """Prints a message; a local machine is not released."""
        _note("runtime.unassign() releases a Colab machine; on a local machine, shut the kernel down yourself")


class _Sections:
    """Outputs under headings, one below the other, where Colab has areas side by side."""

    @contextlib.contextmanager
    def _section(self, title):
        _display().display({"text/markdown": f"#### {title}", "text/plain": str(title)}, raw=True)
        yield

    def remove(self, wait=False):
        """Does nothing: outputs stay."""


@_module
class widgets:
    """Colab's areas for outputs, as sections."""

    class TabBar(_Sections):
        """Tabs by name, or by number from 0."""

        def __init__(self, tab_names, location="top"):
            if location not in ("top", "bottom", "start", "end"):
                raise ValueError(f"Invalid value for location: {location!r}")
            self.tab_names = tab_names

        def output_to(self, tab, select=True):
            """A context whose outputs belong to the tab. Raises ValueError or IndexError for an unknown tab."""
            return self._section(self.tab_names[list(self.tab_names).index(tab) if isinstance(tab, str) else tab])

        def clear_tab(self, tab=None):
            """Does nothing: outputs stay."""

        def __iter__(self):
            for index in range(len(self.tab_names)):
                with self.output_to(index):
                    yield index

    class Grid(_Sections):
        """Cells by row and column from 0."""

        def __init__(self, rows, columns, header_row=False, header_column=False, style=""):
            self.rows, self.columns = rows, columns

        def output_to(self, row, column):
            """A context whose outputs belong to the cell. Raises WidgetException for an unknown cell."""
            if not (0 <= row < self.rows and 0 <= column < self.columns):
                raise errors.WidgetException(f"Cell ({row}, {column}) is outside of the grid")
            return self._section(f"row {row}, column {column}")

        def clear_cell(self, row=None, col=None):
            """Does nothing: outputs stay."""

        def __iter__(self):
            for row, column in itertools.product(range(self.rows), range(self.columns)):
                with self.output_to(row, column):
                    yield row, column


@_module
class _message:
    """Messages to Colab's page."""

    class MessageError(errors.Error):
        """The page answered with an error, or does not exist."""

    @staticmethod
    def blocking_request(request_type, request="", timeout_sec=5, parent=None):
        """Raises MessageError: no page of Colab answers here."""
        way_out = "read the saved notebook with nbformat.read" if "ipynb" in request_type else "remove the call"
        raise _message.MessageError(f"no page of Colab answers the request {request_type!r}: {way_out}")


@_module
class ai:
    """Colab's own language model."""

    class ModelProxyServiceError(Exception):
        """The model does not answer."""

    @staticmethod
    def generate_text(prompt, model_name="", stream=False):
        """Raises ModelProxyServiceError: the model is Colab's."""
        raise ai.ModelProxyServiceError("google.colab.ai runs on Colab only: call a model's own API with your own key")

    @staticmethod
    def list_models():
        """Raises ModelProxyServiceError: the models are Colab's."""
        return ai.generate_text("")


@_module
class snippets:
    """Colab's pane of code snippets, which exists on Colab only."""

    register = staticmethod(_nothing)


@_module
class syntax:
    """Marks text for Colab's editor."""

    html = javascript = sql = css = staticmethod(lambda s: s)
