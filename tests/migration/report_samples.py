"""A report for tests: every kind of entry, and hostile texts for each format."""

from __future__ import annotations

from migration.report.document import FoundItem, Needs, NotebookReport, Place, Report, make_report

HOSTILE = '</pre><script>alert("1")</script> & 100%\n::error::x'


def item(**changes) -> FoundItem:
    values = {
        "rule": "LF901", "name": "cell that cannot be read", "keeps": "needs-human", "changed": False,
        "cell": 3, "line": 2, "file_line": 41, "message": "a cell is no Python", "before": "print 1", "after": "",
        "action": "rewrite it", "anchor": "docs/migration-rules.md#lf901",
    }  # fmt: skip
    return FoundItem(**(values | changes))


def sample_report(rule: str, *, mode="write", hostile: str = HOSTILE) -> Report:
    """Three notebooks: one with findings by the rule, one that was already local, one that failed."""
    rows = (
        item(rule=rule, message=hostile, before=hostile, action=hostile, name=f"name, of: {hostile}"),
        item(rule=rule, keeps="exact", changed=True, line=None, before="x", after="y", action="", file_line=None),
        item(rule=rule, keeps="equivalent", changed=True, cell=None, line=None, action="", file_line=None),
    )
    return make_report(
        [
            NotebookReport(
                input="nb, ü:1.ipynb",
                status="migrated",
                output="out/nb.ipynb",
                sha256="0" * 64,
                files=("out/nb.requirements.txt",),
                changes=2,
                hardware="GPU T4",
                rules={rule: 3},
                keeps={"needs-human": 1, "exact": 1, "equivalent": 1},
                requirements=Needs(("numpy==1.26",), ("ffmpeg",)),
                findings=rows,
                hazards=(Place("LF810", "sudo", 1, 1),),
                secrets=(Place("LF801", "Hugging Face token", 2, 1),),
            ),
            NotebookReport(input="plain.ipynb", status="unchanged", sha256="1" * 64),
            NotebookReport(input="bad.ipynb", status="failed", error=f"no notebook: {hostile}"),
        ],
        mode,
    )
