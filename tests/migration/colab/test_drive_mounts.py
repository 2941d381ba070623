import pytest

from migration.cell.source import CellSource
from migration.colab.drive_mounts import is_mount, is_static, mount_points
from migration.facts import collect_facts


def _facts(*texts):
    sources = [CellSource(text, index=index) for index, text in enumerate(("from google.colab import drive", *texts))]
    return sources, collect_facts(sources)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("drive.mount('/content/drive')", True),
        ("drive.mount('/content' + '/drive', force_remount=True)", True),
        ("drive.flush_and_unmount()", True),
        ("drive.mount(place)", False),
        ("x = drive.mount('/content/drive')", False),
        ("drive.mount()", False),
    ],
)
def test_a_mount_by_itself(text, expected):
    sources, facts = _facts(text)
    (use,) = facts.uses(sources[1])
    assert is_mount(use) is expected
    assert is_static(sources, facts) is expected


def test_what_runs_only_on_colab_does_not_count():
    sources, facts = _facts("if 'google.colab' in sys.modules:\n    ok = drive.mount('/content/drive')")
    assert is_static(sources, facts)
    assert mount_points(sources, facts) == ()


def test_a_name_with_two_values_gives_two_places():
    sources, facts = _facts("if a:\n    root = '/content'\nelse:\n    root = '/data'\ndrive.mount(root + '/g')")
    assert mount_points(sources, facts) == ("/content/g", "/data/g")


def test_a_name_that_is_computed_gives_none():
    sources, facts = _facts("root = '/content'\nroot = ask()\ndrive.mount(root + '/g')")
    assert mount_points(sources, facts) == ()
