"""Notebooks that test for Colab behave as on any local machine."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

_FLAGS = frozenset({"IN_COLAB", "is_colab", "on_colab", "COLAB", "in_colab", "colab"})


def _local(name: str, rules: tuple[str, ...], text: str) -> Case:
    return Case(name, cells(text), rules, original_on="local", gone=_FLAGS, files={"data.csv": "a,b\n1,2\n"})


CASES = (
    _local(
        "a flag from sys.modules",
        ("LF301", "LF305", "LF306"),
        r"""
import sys
IN_COLAB = 'google.colab' in sys.modules
print('start')
# ----
if IN_COLAB:
    from google.colab import drive
    drive.mount('/content/drive')
    root = 'colab'
else:
    # The plain machine.
    root = 'here'
root
# ----
if not IN_COLAB:
    print('here')
# ----
where = 'colab' if IN_COLAB else 'local'
where
# ----
if IN_COLAB:
    print('go to the menu')
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
        path = 'colab.csv'
    else:
        path = path or 'data.csv'
    return path
setup()
# ----
if IN_COLAB: print('one line')
# ----
verbose = root == 'here' or IN_COLAB
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
        ("LF302",),
        r"""
try:
    import google.colab
    IN_COLAB = True
except ImportError:
    IN_COLAB = False
# ----
try:
    from google.colab import output
    output.enable_custom_widget_manager()
except ModuleNotFoundError:
    print('no widgets')
# ----
try:
    from google.colab import drive
    drive.mount('/content/drive')
    folder = 'there'
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
        ("LF301", "LF306", "LF312"),
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
        "what only the Colab branch does",
        cells(r"""
import os, sys
IN_COLAB = 'google.colab' in sys.modules
# ----
if IN_COLAB:
    from google.colab import drive
    drive.mount('/content/drive')
    root = '/content/drive/MyDrive'
else:
    root = '.'
print(open(root + '/data.csv').read())
# ----
open('here.txt').read()
# ----
try:
    from google.colab import userdata
    token = userdata.get('TOKEN')
except ImportError:
    token = None
# ----
if IN_COLAB and not os.path.exists('made'):
    os.environ['MADE'] = 'yes'
    !mkdir -p made/$MADE
# ----
try:
    import google.colab
    COLAB = True
    print('Running in Colab.')
    %cd made
except ImportError:
    COLAB = False
# ----
os.getcwd()
"""),
        ("LF303", "LF306"),
        files={"here.txt": "h"},
        drive={"data.csv": "a,b\n1,2\n"},
        secrets={"TOKEN": "t"},
        gone=_FLAGS,
    ),
    Case(
        "flags of any name for an import of Colab",
        cells(r"""
import os
try:
    from google.colab import userdata
    HAVE_SECRETS = True
except ImportError:
    HAVE_SECRETS = False
token = userdata.get('TOKEN') if HAVE_SECRETS else None
if HAVE_SECRETS:
    token = userdata.get('TOKEN')
token
# ----
try:
    import google.colab
    CLOUD = True
except ImportError:
    CLOUD = False
# ----
if CLOUD:
    !mkdir -p made
    os.environ['MADE'] = 'yes'
os.path.isdir('made'), os.environ.get('MADE')
"""),
        ("LF303",),
        secrets={"TOKEN": "t"},
        gone=frozenset({"CLOUD"}),
    ),
    Case(
        "the drive is mounted unless it is there",
        cells(r"""
import os
from google.colab import drive
if not os.path.exists('/content/drive'):
    print('Mounting')
    drive.mount('/content/drive')
    root = '/content/drive/MyDrive'
    open(root + '/made.txt', 'w').write('1')
else:
    print('already mounted')
sorted(os.listdir(root))
# ----
if os.path.isdir('/content/drive/MyDrive'):
    print('still mounted')
else:
    drive.mount('/content/drive')
    print('mounted again')
"""),
        ("LF203", "LF303"),
        drive={"data.csv": "a,b\n1,2\n"},
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
        ("LF303", "LF306"),
        drive={"data.csv": "a,b\n1,2\n"},
        gone=_FLAGS,
    ),
)
