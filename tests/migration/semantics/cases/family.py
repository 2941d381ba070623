"""Every form of a folder's name in every position of a cell."""

from __future__ import annotations

from dataclasses import replace

from migration.rules.preamble import Folders
from tests.migration.semantics.outcome import Case, cells

_PYTHON = cells(r"""
v = 'PATH'
# ----
v = "PATH", r'PATH', R"PATH"
# ----
v = f'{name}: PATH', f"{{PATH}} {name!r:>8} {3.14159:.{digits}f}"
# ----
v = 'brace {PATH} }{', 'it\'s PATH', "tab\tPATH\n", 'back\\slash PATH'
# ----
v = '%s: PATH %%' % name, '{}: PATH {{}}'.format(name), '{n}'.format(n='PATH')
# ----
v = 'PATH' + '.bak', 'PATH'.replace('.csv', ''), 'PATH'[-3:]
# ----
v = {'PATH': ['PATH', ('PATH',)]}['PATH']
# ----
v = ('first '
     'PATH'
     ' last')
# ----
v = 'a' 'PATH' "b" f'{name}'
# ----
v = '''PATH
  "PATH" {x}
'''
# ----
v = f'''{name}
PATH {{x}}'''
# ----
v = 'see PATH, or "PATH": (PATH) PATH;'
# ----
v = open('PATH').read()
# ----
with open('PATH') as file, open("PATH", 'rb') as other:
    v = file.read(), other.read()
# ----
v = f"{open('PATH').read()!r}", f'{"PATH"}', f"{name + 'PATH'}"
# ----
v = os.path.basename('PATH'), os.path.join('PATH', 'x'), os.path.exists('PATH')
# ----
v = Path('PATH').suffix, str(Path('PATH').parent / 'x'), Path('PATH').read_text()
# ----
v = subprocess.check_output(['cat', 'PATH']), subprocess.check_output('cat "PATH"', shell=True)
# ----
v = os.system('test -e "PATH"'), subprocess.run(f"cat 'PATH'", shell=True, capture_output=True).stdout
# ----
def f(path='PATH', *rest, key="PATH"):
    '''Reads PATH.'''
    return path, key
v = f(), (lambda p='PATH': p)()
# ----
class A:
    path: str = 'PATH'
    def m(self, p=path):
        return p
v = A().m()
# ----
v = 'PATH' if name else None, 'PATH' == "PATH", 'PATH' in ['PATH'], not 'PATH'
# ----
for p in ['PATH']:
    if p.startswith('PATH'):
        v = [x for x in ('PATH', p)]
# ----
print('PATH', "a PATH b", sep='|')
# ----
v = eval("'PATH'"), json.loads('{"path": "PATH"}')
# ----
os.environ['PLACE'] = 'PATH'
v = os.environ['PLACE']
# ----
v = (w := 'PATH'); w
# ----
async def g():
    return 'PATH'
v = await g()
# ----
v = 'PATH'; x = 'PATH'
if v: y = 'PATH'
# ----
v = "é PATH ü", 'PATH/ü', '日本 PATH'  # PATH é
# ----
try:
    raise ValueError('PATH')
except ValueError as error:
    v = str(error)
# ----
%time v = 'PATH'
# ----
%%time
v = 'PATH'
""")

_SHELL = cells(r"""
!cat WORD
# ----
!cat "PATH" 'PATH'
# ----
!echo "x: PATH" 'y: PATH' z:WORD
# ----
!cat WORD > out.txt; cat out.txt >> WORD.log && rm out.txt WORD.log
# ----
v = !cat WORD
# ----
v = !wc -l < WORD
# ----
!test -f WORD && echo yes || echo no
# ----
!X=WORD; cat "$X"
# ----
!export X=WORD && echo $HOME > /dev/null && test -f "$X" && echo exported
# ----
!for f in WORD "PATH"; do cat "$f"; done
# ----
!python -c "print(open('PATH').read())"
# ----
!python -c 'print(open("PATH").read())'
# ----
!awk -F, '{print $2}' WORD | head -1
# ----
!sed "s#PATH#y#; s#a#PATH#" WORD
# ----
!echo '{"path": "PATH"}' | python -c 'import json, sys; print(json.load(sys.stdin)["path"])'
# ----
!echo --path=WORD -I WORD key:WORD WORD,WORD
# ----
!echo "\"PATH\" \$HOME" '"PATH"'
# ----
!cat "$(dirname WORD)/data.csv" 2> /dev/null || echo a space
# ----
!cat WORD  # and PATH
# ----
!(cat WORD) | (cat)
# ----
!cat WORD \
  "PATH"
# ----
!cat {"-n"} "PATH"
# ----
!echo {name} $name ${HOME:+set} "PATH"
# ----
if name:
    !cat WORD
    for n in range(2):
        v = !echo "{n} PATH"
# ----
get_ipython().system("cat 'PATH'")
v = get_ipython().getoutput('cat "PATH"')
# ----
%%bash
x="PATH"
cat "$x" 'PATH' WORD
for f in WORD; do echo "${f##*/} {PATH}"; done
cat <<END
PATH
END
# ----
%%sh
cat WORD | head -1
# ----
%%bash -s WORD
cat "$1"
# ----
%%writefile run.py
import sys
print(sys.argv)
# ----
!python run.py "PATH"
# ----
%run run.py one
# ----
%env PLACE=PATH
# ----
!cat "$PLACE"
# ----
%cat WORD
""")

_FORMS = {
    "a file": ("/content/data.csv", ""),
    "a file on the drive": ("/content/drive/MyDrive/data.csv", "/content/drive"),
    "a file on the drive with a space": ("/content/drive/My Drive/data.csv", "/content/drive"),
    "a file on the drive elsewhere": ("/content/gdrive/MyDrive/in/data.csv", "/content/gdrive"),
}
_START = """import json, os, subprocess
from pathlib import Path
name, digits = 'n', 2"""


def _case(form: str, language: str, places: tuple[str, ...], rules: tuple[str, ...]) -> Case:
    path, mount = _FORMS[form]
    word = path.replace(" ", r"\ ")
    first = f"from google.colab import drive\ndrive.mount('{mount}')\n{_START}" if mount else _START
    table = "a,b\n1,2\n"
    return Case(
        f"{form} in {language}",
        (first, *(place.replace("PATH", path).replace("WORD", word) for place in places)),
        rules,
        files={"data.csv": table},
        drive={"data.csv": table, "in/data.csv": table},
    )


def _elsewhere(case: Case) -> Case:
    """The case with folders other than the start folder of the notebook."""
    return replace(case, name=f"{case.name}, other folders", folders=Folders(work="in/work", drive="../../my drive"))


_IN_PYTHON = [_case(form, "Python", _PYTHON, ("LF402",)) for form in _FORMS]
_IN_SHELL = [
    _case(form, "the shell", _SHELL, ("LF404",)) for form, (_, mount) in _FORMS.items() if mount != "/content/gdrive"
]
CASES = (*_IN_PYTHON, *_IN_SHELL, _elsewhere(_IN_PYTHON[1]), _elsewhere(_IN_SHELL[1]))
