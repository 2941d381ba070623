"""Notebooks that ask whether they run on Colab do here what they do on any plain machine."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

_FLAGS = frozenset({"IN_COLAB", "is_colab", "on_colab", "COLAB", "in_colab", "colab"})


def _local(name: str, rules: tuple[str, ...], text: str) -> Case:
    return Case(name, cells(text), rules, original_on="local", gone=_FLAGS, files={"data.csv": "a,b\n1,2\n"})


CASES = (
    _local(
        "a flag from sys.modules",
        ("LF301", "LF304", "LF305", "LF306"),
        r"""
import sys
IN_COLAB = 'google.colab' in sys.modules
print('start')
# ----
if IN_COLAB:
    from google.colab import drive
    drive.mount('/content/drive')
    root = '/content/drive/MyDrive'
else:
    # The plain machine.
    root = '.'
root
# ----
if not IN_COLAB:
    print('here')
# ----
where = 'colab' if IN_COLAB else 'local'
where
# ----
if IN_COLAB:
    !pip install -q nothing-of-this-name
    %cd /content/nowhere
# ----
if IN_COLAB and sys.platform == 'linux':
    print('colab on linux')
elif sys.platform == 'linux':
    print('linux')
else:
    print('other')
# ----
def setup(path=None):
    if IN_COLAB:
        path = '/content'
    else:
        path = path or 'data.csv'
    return path
setup()
# ----
if IN_COLAB: print('one line')
# ----
verbose = root == '.' or IN_COLAB
if sys.platform == 'linux' and not IN_COLAB:
    print('a plain linux')
# ----
for n in range(2):
    if not IN_COLAB:
        text = '''first
  second
third'''
        print(n, text)
    else:
        pass
""",
    ),
    _local(
        "a flag from a try",
        ("LF301", "LF302"),
        r"""
try:
    import google.colab
    IN_COLAB = True
except ImportError:
    IN_COLAB = False
# ----
if IN_COLAB:
    base = '/content/'
else:
    base = ''
open(base + 'data.csv').read()
# ----
try:
    from google.colab import files
    files.upload()
except ModuleNotFoundError:
    print('no upload')
# ----
try:
    from google.colab import drive
    drive.mount('/content/drive')
    folder = '/content/drive/MyDrive/x'
except:
    folder = 'here'
folder
# ----
try:
    import google.colab
except ImportError:
    pass
else:
    print('on Colab')
""",
    ),
    _local(
        "other questions",
        ("LF301", "LF306"),
        r"""
import os
if 'google.colab' in str(get_ipython()):
    print('colab')
else:
    print('jupyter')
# ----
if os.environ.get('COLAB_GPU') or 'COLAB_RELEASE_TAG' in os.environ:
    print('colab')
# ----
on_colab = bool(os.getenv('COLAB_RELEASE_TAG'))
print('go on')
# ----
import importlib.util
def is_colab():
    return importlib.util.find_spec('google.colab') is not None
if is_colab():
    print('colab')
# ----
import sys
if 'google.colab' in sys.modules:
    from google.colab import output
    output.enable_custom_widget_manager()
x = 1
# ----
if os.path.exists('/content/missing'):
    print('found')
else:
    print('not found')
""",
    ),
    Case(
        "names that only the Colab branch binds",
        cells(r"""
import sys
IN_COLAB = 'google.colab' in sys.modules
assert IN_COLAB, 'open this notebook in Colab'
# ----
if IN_COLAB:
    from google.colab import drive
    drive.mount('/content/drive')
    root = '/content/drive/MyDrive'
# ----
print(open(root + '/data.csv').read())
# ----
if not IN_COLAB:
    raise RuntimeError('only for Colab')
else:
    place = '/content'
place
"""),
        ("LF303", "LF307"),
        drive={"data.csv": "a,b\n1,2\n"},
        gone=_FLAGS,
    ),
)
