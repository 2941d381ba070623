"""Paths: every position of /content and the drive."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

CASES = (
    Case(
        "paths in Python",
        cells(r"""
a = '/content/data.csv'
b = "/content"
print(a, b)
# ----
name = 'data'
c = f'/content/{name}.csv'
d = f"{name}/content/{name!r:>8}"
print(c, d)
# ----
from pathlib import Path
e = Path('/content') / 'data.csv'
f = Path('/content/data.csv').name
e, f
# ----
import os
g = os.path.join('/content', 'x', 'y.txt')
h = '/content/' + name + '.csv'
print(g, h)
# ----
i = '/content/%s.csv' % name
j = '/content/{}.csv'.format(name)
k = '/content/{{x}}/{n}'.format(n=1)
[i, j, k]
# ----
with open('/content/data.csv') as file:
    text = file.read()
print(text, end='')
# ----
def load(path='/content/data.csv', *, root='/content'):
    return open(path).read(), root
load()
# ----
l = {'/content/a': ['/content/b', ('/content/c',)]}
l['/content/a']
# ----
m = ('/content'
     '/data.csv')
n = r'/content/a\b'
o = '/content/a\tb'
print(m, n, o)
# ----
class Settings:
    root = '/content'
    data = root + '/data.csv'
p = Settings.data
# ----
q = '/content/data.csv'.split('/')[-1]
r = os.path.dirname('/content/data.csv')
s = '/content' in '/content/x'
# ----
os.makedirs('/content/out', exist_ok=True)
os.chdir('/content/out')
t = os.getcwd()
open('here.txt', 'w').write('x')
# ----
os.chdir('/content')
import sys
sys.path.append('/content/out')
sys.path[-1]
# ----
u = '''root: /content
data: "/content/data.csv"
other: {x: 1}
'''
print(u)
# ----
v = f'''{name}: /content/data.csv
{{}} /content'''
print(v)
# ----
w = lambda p='/content': p
w()
# ----
x = [os.path.exists(p) for p in ('/content/data.csv', '/content/none')]
x
# ----
y = 'see https://example.org/content/a and ./content/b and /contents/c'
print(y)
# ----
print('saved to /content/out/model.h5, see /content')
"""),
        ("LF402",),
        files={"data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "the mount point as the current folder",
        cells(r"""
from google.colab import drive
drive.mount('/content/gdrive')
%cd /content/gdrive
# ----
%cd MyDrive/in
# ----
print(open('data.csv').read())
# ----
import os
os.chdir('/content/gdrive')
os.chdir('MyDrive')
# ----
!cat in/data.csv
# ----
%cd /content/gdrive
!cat MyDrive/in/data.csv
"""),
        ("LF203", "LF402", "LF404"),
        drive={"in/data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "paths on the drive",
        cells(r"""
from google.colab import drive
drive.mount('/content/drive')
# ----
a = '/content/drive/MyDrive/in/data.csv'
print(open(a).read())
# ----
b = '/content/drive/My Drive/in'
import os
print(os.listdir(b))
# ----
c = f'/content/drive/MyDrive/{"in"}/data.csv'
open(c).read()
# ----
root = '/content/drive/MyDrive/'
d = root + 'out.txt'
open(d, 'w').write('drive')
# ----
e = '/content/drive'
print(os.path.exists(e + '/MyDrive/in/data.csv'))
# ----
from pathlib import Path
f = Path('/content/drive') / 'My Drive' / 'in' / 'data.csv'
f.read_text()
# ----
g = open('drive/MyDrive/in/data.csv').read()
g
# ----
h = '/content/drive/Shareddrives/team/plan.txt'
print(open(h).read())
# ----
import shutil
shutil.copy('/content/drive/MyDrive/in/data.csv', '/content/copy.csv')
None
"""),
        ("LF203", "LF402"),
        drive={"in/data.csv": "a,b\n1,2\n"},
        shared={"team/plan.txt": "plan"},
    ),
    Case(
        "paths in shell lines",
        cells(r"""
!cat /content/data.csv
# ----
!cat '/content/data.csv' "/content/data.csv"
# ----
!mkdir -p /content/out/deep && cp /content/data.csv /content/out/deep/copy.csv && ls /content/out/deep
# ----
name = 'data'
!cat /content/{name}.csv
# ----
!cat /content/$name.csv 2> /dev/null || echo no attribute of a text
# ----
!cat /content/data.csv | awk '{print $1}' > /content/out/first.txt
# ----
!cd /content/out && pwd
# ----
lines = !cat /content/data.csv
print(lines)
# ----
for n in range(2):
    !echo {n} >> /content/out/numbers.txt

# ----
!tar -czf /content/out/data.tgz -C /content data.csv && tar -tzf /content/out/data.tgz && rm /content/out/data.tgz
# ----
!PYTHONPATH=/content/out python -c 'import os; print(os.environ["PYTHONPATH"])'
# ----
!python -c "print('/content')"
# ----
!cp /content/data.csv \
   /content/out/continued.csv
!ls /content/out
# ----
!echo see https://example.org/content/x --root=/content -o/content/out
# ----
if name:
    !head -1 /content/data.csv
else:
    pass
# ----
!test -e /content/missing || echo none
# ----
!rm -rf /content/out/deep; ls /content/out
"""),
        ("LF404",),
        files={"data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "paths in magics",
        cells(r"""
%cd /content
%pwd
# ----
%mkdir /content/made
%cd /content/made
open('x.txt', 'w').write('x')
# ----
%cd -q /content
# ----
%%writefile /content/script.py
import sys
print('script', sys.argv[1:])
# ----
%run /content/script.py a b
# ----
%%bash
cat /content/data.csv
cd /content/made && pwd
# ----
%%sh
echo /content; ls /content/made
# ----
%%bash -s a
for i in 1 2; do echo "$i $1 /content"; done > /content/loop.txt
cat /content/loop.txt
# ----
%env PLACE=/content/made
import os
os.environ['PLACE']
# ----
%%capture kept
print('/content/data.csv')
# ----
print(kept.stdout)
# ----
%ls /content/made
# ----
%cat /content/data.csv
"""),
        ("LF404",),
        files={"data.csv": "a,b\n1,2\n"},
    ),
)
