import pytest

from migration.analysis.facts import collect_facts
from migration.analysis.mounts import is_mount, is_static, mount_points
from migration.python.source import CellSource


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
    (use,) = facts.colab.cell(sources[1]).uses
    assert is_mount(use) is expected
    assert is_static(sources, facts.colab) is expected


def test_mounts_in_colab_branches_do_not_count():
    sources, facts = _facts("if 'google.colab' in sys.modules:\n    print(drive)")
    assert is_static(sources, facts.colab)
    assert mount_points(sources, facts.colab) == ()


def test_a_commented_mount_counts_without_another_one():
    sources, facts = _facts("# drive.mount('/content/g')")
    assert (is_static(sources, facts.colab), mount_points(sources, facts.colab)) == (False, ("/content/g",))
    sources, facts = _facts("# drive.mount('/content/g')\ndrive.mount('/content/d')")
    assert (is_static(sources, facts.colab), mount_points(sources, facts.colab)) == (True, ("/content/d",))


def test_a_commented_mount_leaves_other_cells_unread():
    sources, _ = _facts("x = (")
    assert "_parsed" not in vars(sources[1])
    assert sources[1].tree is None
    assert "_parsed" in vars(sources[1])


def test_a_folder_below_drive_in_a_magic_without_a_sign_is_no_name():
    sources, facts = _facts("drive.mount('/content/drive')", "cd /content/drive/MyDrive/plant")
    assert is_static(sources, facts.colab)


def test_a_name_with_two_values_gives_two_places():
    sources, facts = _facts("if a:\n    root = '/content'\nelse:\n    root = '/data'\ndrive.mount(root + '/g')")
    assert mount_points(sources, facts.colab) == ("/content/g", "/data/g")


def test_a_computed_name_gives_no_place():
    sources, facts = _facts("root = '/content'\nroot = ask()\ndrive.mount(root + '/g')")
    assert mount_points(sources, facts.colab) == ()
