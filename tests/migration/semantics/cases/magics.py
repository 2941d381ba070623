"""Magics that exist only on Colab, and comments that only Colab accepts."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

CASES = (
    Case(
        "cells of Colab",
        cells(r"""
#@title A listing {display-mode: "form"}
%%bash
ls /content
# ----
%%shell
cat /content/data.csv
for i in 1 2; do echo $i; done
# ----
%shell echo one line
# ----
# The next line makes a file.
%%writefile /content/made.txt
content: here
# ----
open('made.txt').read()
# ----
#@title Time
#@markdown Text
%%capture out
print('captured')
# ----
out.stdout
# ----
try:
    %tensorflow_version 2.x
except Exception:
    pass
y = 2
# ----
# %tensorflow_version only exists in Colab.
print(y)
# ----
%tensorflow_version 2.x
print(y)
# ----
  # Indented
  !echo first

print(y)
# ----
%%writefile -a /content/made.txt
more
# ----
!cat made.txt
# ----
%load_ext google.colab.data_table
z = 3
# ----
%cd -q /content
# ----
%cd -q /content
# ----
cd /content
# ----
cd "/content"
"""),
        (
            "LF404",
            "LF560",
            "LF561",
            "LF563",
            "LF567",
            "LF568",
            "LF601",
        ),
        files={"data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "files for other programs",
        cells(r"""
%%file /content/notes.txt
See the table.
# ----
%%script bash
cat /content/notes.txt
"""),
        ("LF404",),
        files={"data.csv": "a,b\n1,2\n"},
    ),
)
