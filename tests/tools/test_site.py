"""The documentation site: which pages are copied, which modules the API lists. mkdocs itself is not run."""

import re

import yaml

from tests.support import REPO_ROOT
from tools import site


def test_every_page_of_the_navigation_is_staged(tmp_path):
    for pattern in ("*.md", "docs/*.md", "dev/*.md", "configs/local/devices/README.md"):
        for path in REPO_ROOT.glob(pattern):
            copy = tmp_path / path.relative_to(REPO_ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    for package in site.PACKAGES:
        (tmp_path / f"{package}.py").touch()
    source = site.stage(tmp_path)
    settings = yaml.safe_load((REPO_ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert source == tmp_path / settings["docs_dir"]
    pages = re.findall(r"[\w./-]+\.md", yaml.safe_dump(settings["nav"]))
    assert [page for page in pages if not (source / page).is_file()] == []
    in_docs = {f"docs/{path.name}" for path in (REPO_ROOT / "docs").glob("*.md")}
    assert in_docs <= set(pages)


def test_api_pages_list_public_modules_only():
    modules = site.public_modules(REPO_ROOT, "trainers")
    assert "trainers.run" in modules
    assert not [name for name in modules if "__init__" in name]
    assert site.public_modules(REPO_ROOT, "landfall_runtime") == ["landfall_runtime"]
