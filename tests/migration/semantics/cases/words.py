"""google.colab and its folders in comments, texts and cells that are not Python 3; secrets."""

from __future__ import annotations

from hashlib import sha256

from tests.migration.semantics.outcome import Case, cells

_TOKEN = "hf_" + sha256(b"no secret").hexdigest()[:34]

CASES = (
    Case(
        "code as text",
        cells(r"""
# from google.colab import files
# path = '/content/data.csv', or see /content
x = 1
# ----
!python -c 'from google.colab import files; print(files.__name__.split(".")[-1])'
# ----
def documented():
    '''Reads /content/data.csv.'''
    return x
documented()
"""),
        ("LF230", "LF407"),
    ),
    Case(
        "cells that do not compile",
        cells(r"""
import google.colab
print "see /content/x"
# ----
y = 2
# ----
%cd /content
print 'Python 2', open('/content/x')
# ----
z = '/content/' + fn where fn = ...
# ----
print "first"
cd /content/x
"""),
        ("LF230",),
    ),
    Case(
        "secrets in the code",
        cells(
            r"""
token = "SECRET"
print(len(token))
# ----
import os
os.environ['HF_TOKEN'] = 'SECRET'
len(os.environ['HF_TOKEN'])
# ----
!printf %s SECRET | wc -c
# ----
api_key = ""  #@param {type:"string"}
print(repr(api_key))
""".replace("SECRET", _TOKEN)
        ),
        ("LF603", "LF801"),
        environment={"HF_TOKEN": _TOKEN, "TOKEN": _TOKEN},
    ),
    Case(
        "a configuration with a local twin",
        cells(r"""
text = open('/content/configs/a.yaml').read()
# ----
!cat configs/a.yaml configs/b.yaml
"""),
        ("LF402", "LF430"),
        files={"configs/a.yaml": "x: 1\n", "configs/a_local.yaml": "x: 1\n", "configs/b.yaml": "y: 2\n"},
        in_workspace=True,
    ),
)
