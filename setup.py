"""The layout of the packages in a wheel; everything else about the build is in pyproject.toml.

In the repository `core`, `pipelines` and the others are top-level packages. In site-packages such names would collide
with those of other distributions, so a wheel contains them in one folder, which the `landfall` command adds to the
module path of its own processes. The same folder contains what `landfall init` copies to a new workspace. An editable
install moves nothing.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCE = Path(__file__).resolve().parent
HOME = "landfall_home"
PACKAGES = ("core", "trainers", "inference", "migration", "pipelines")
WORKSPACE = ("configs", "notebooks", "training_dashboard", "docs")
# Files of runs and editors, and requirements of the project, which do not belong into a new workspace.
LEFT_OUT = shutil.ignore_patterns("data", "requirements", ".*", "__pycache__")


class BuildWheelTree(build_py):
    def run(self):
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)  # it may contain modules that were deleted since
        super().run()
        built, home = Path(self.build_lib), Path(self.build_lib, HOME)
        home.mkdir()
        for package in PACKAGES:
            (built / package).rename(home / package)
        for folder in WORKSPACE:
            shutil.copytree(SOURCE / folder, home / folder, ignore=LEFT_OUT)
        shutil.copy(SOURCE / "landfall_runtime.py", home)  # `landfall migrate` copies it next to a notebook


setup(cmdclass={"build_py": BuildWheelTree})
