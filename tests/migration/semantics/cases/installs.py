"""Packages of Python and of the system. pip is real, and all packages are already installed."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

CASES = (
    Case(
        "installs of what is there",
        cells(
            r"""
!pip install -q numpy>=1.20 && rm -f '=1.20'
import numpy
# ----
pip install -q numpy
# ----
packages = ['numpy']
for package in packages:
    !pip install -q $package
# ----
!python -m pip install -q -r /content/requirements.txt && echo installed
# ----
%%bash
pip install -q numpy
echo done
# ----
import subprocess
subprocess.run(['pip', 'install', '-q', 'numpy']).returncode
# ----
subprocess.run('pip install -q numpy'.split()).returncode
# ----
!uv pip install --system -q numpy
# ----
!pip install -q --no-index google-colab numpy > /dev/null 2>&1
# ----
!cd . && pip install -q --no-index google-colab > /dev/null 2>&1
"""
        ),
        ("LF404", "LF501", "LF504", "LF505"),
        files={"requirements.txt": "numpy>=1.20\n"},
    ),
    Case(
        "system packages",
        cells(r"""
!apt-get -qq install -y ffmpeg > /dev/null
# ----
!apt update -qq
!sudo apt-get install -y -qq graphviz
x = 1
# ----
!apt-get install -qq tree && echo installed
# ----
if x:
    !apt-get -y install swig
# ----
%%bash
apt-get install -y -qq ffmpeg
echo after
# ----
import os, subprocess
os.system('apt-get install -y -qq ffmpeg')
# ----
subprocess.run(['apt-get', 'install', '-y', 'ffmpeg']).returncode
"""),
        ("LF520",),
    ),
)
