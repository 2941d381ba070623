"""The example view of dev/DASHBOARD.md works unchanged, and the code is as small as the page says."""

from __future__ import annotations

import re
import shutil

import pytest

from pipelines.dashboard.single_file import write_single_file
from tests.dashboard.browsing import serving, show
from tests.dashboard.builders import REPOSITORY


def add_documented_view(page):
    text = (REPOSITORY / "dev/DASHBOARD.md").read_text(encoding="utf-8")
    (page / "js/views/checks.mjs").write_text(re.search(r"^```js\n(.*?)^```", text, re.M | re.S)[1], encoding="utf-8")
    app = page / "js/app.mjs"
    source = app.read_text(encoding="utf-8").replace("const VIEWS = { ", "const VIEWS = { checks, ")
    at = source.index("import ")
    app.write_text(f'{source[:at]}import {{ checks }} from "./views/checks.mjs";\n{source[at:]}', encoding="utf-8")


@pytest.mark.slow
def test_the_documented_example_view_works_served_and_in_a_single_file(whole, tmp_path, visit):
    root = shutil.copytree(whole, tmp_path / "workspace")
    page = root / "training_dashboard"
    add_documented_view(page)
    with serving(page) as url:
        for address in (url, write_single_file(root).as_uri()):
            opened = show(visit(address), "checks")
            assert "PatchTST loss falls" in opened.inner_text("main")
            assert opened.complaints == []
