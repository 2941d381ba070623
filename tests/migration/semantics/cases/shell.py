"""Shell commands: clones and downloads, background commands, syntax of bash only, restarts."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

CASES = (
    Case(
        "clones and downloads",
        cells(r"""
!git clone -q http://example.org/project.git
# ----
%cd project
!cat tool.py
# ----
import sys
sys.path.insert(0, '/content/project')
from tool import ANSWER
# ----
%cd /content
!git clone -q http://example.org/project.git /content/other && ls other
# ----
!wget -q http://example.org/data.csv
text = open('/content/data.csv').read()
# ----
!wget -q http://example.org/data.csv -O /content/named.csv
# ----
!wget -q -P /content/folder http://example.org/data.csv
# ----
!curl -s -o /content/curled.csv http://example.org/data.csv
!curl -sO http://example.org/data.csv
# ----
url = 'http://example.org/data.csv'
!wget -q {url} -O loop.csv
!cat loop.csv
# ----
!wget -q http://example.org/content/none.csv || echo none
# ----
!git clone -q http://example.org/project.git 2> /dev/null
!ls project/tool.py
"""),
        ("LF402", "LF404"),
        needs=("git", "wget", "curl"),
    ),
    Case(
        "shell words",
        cells(r"""
!for i in 1 2; do echo $i; done
# ----
!echo {1..3}
# ----
!if [[ -e /content/data.csv ]]; then echo yes; fi
# ----
!diff <(cat /content/data.csv) /content/data.csv && echo same
# ----
count = !wc -l < /content/data.csv
int(count[0])
# ----
import subprocess, os
subprocess.run(['cp', '/content/data.csv', '/content/copy.csv'], check=True)
subprocess.check_output('cat /content/copy.csv', shell=True)
# ----
os.system('cp /content/data.csv /content/"third copy.csv"')
# ----
!mkdir -p /content/a/{b,c} && find /content/a -type d | sort
# ----
!cd /content/a
!pwd
# ----
%cd /content/a
!echo $PWD
%cd ..
# ----
get_ipython().system('cat /content/data.csv')
# ----
!rm -rf a
"""),
        ("LF402", "LF404"),
        files={"data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "a deletion of the samples",
        cells(r"""
!rm -rf /content/sample_data
x = 1
# ----
with open('/content/log.txt', 'w') as log:
    !rm -rf sample_data
# ----
!ls /content
"""),
        ("LF524",),
    ),
    Case(
        "commands in the background",
        cells(r"""
!sleep 0.1; touch /content/late.txt &
# ----
!(sleep 0.1; touch /content/later.txt) &
# ----
!nohup sh -c "echo started; sleep 0.1; echo ended" > /content/log.txt 2>&1 &
# ----
!sleep 1; test -e /content/late.txt && cat /content/log.txt
"""),
        ("LF540",),
    ),
    Case(
        "restarts",
        cells(r"""
!mkdir -p made
# ----
import os
os.kill(os.getpid(), 9)
# ----
x = 1
print(x)
# ----
import IPython
app = IPython.Application.instance()
app.kernel.do_shutdown(True);
# ----
y = 2
y
# ----
def restart_runtime():
    os.kill(os.getpid(), 9)
print('defined')
# ----
!kill -9 $PPID
# ----
z = 3
z
"""),
        ("LF250", "LF541"),
        restarts=True,
    ),
)
