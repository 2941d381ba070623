from migration.notebook.difference import source_diff

SECRET = "hf_" + "Qz7Rk2Wm9Xv4Tb6Lp1Nc8Yd3Gh5Js0AfEu"


def diff(before, after, origins=None):
    return source_diff("nb.ipynb", before, after, origins or range(len(after)))


def test_equal_cells_give_no_difference():
    assert diff(["a", "b\nc"], ["a", "b\nc"]) == ""


def test_each_cell_that_differs_has_its_own_header():
    text = diff(["a", "keep\nold\nend", "c", "x"], ["a", "keep\nnew\nend", "c", "y"])
    assert text == (
        "--- nb.ipynb:cell 1\n+++ nb.ipynb:cell 1\n@@ -1,3 +1,3 @@\n keep\n-old\n+new\n end\n"
        "--- nb.ipynb:cell 3\n+++ nb.ipynb:cell 3\n@@ -1 +1 @@\n-x\n+y\n"
    )


def test_added_cells_are_new_files_and_the_others_keep_their_numbers():
    before = ["# Title", "x = '/content'", "y"]
    after = ["# Title", "work_dir = '.'", "import os", "x = WORK_DIR", "y"]
    text = diff(before, after, [0, None, None, 1, 2])
    headers = [line for line in text.splitlines() if line.startswith(("---", "+++"))]
    assert headers == [
        "--- /dev/null",
        "+++ nb.ipynb:new cell before cell 1",
        "--- /dev/null",
        "+++ nb.ipynb:new cell before cell 1",
        "--- nb.ipynb:cell 1",
        "+++ nb.ipynb:cell 1",
    ]


def test_a_removed_cell_is_a_deleted_file():
    assert diff(["a", "gone", "b"], ["a", "b"], [0, 2]) == "--- nb.ipynb:cell 1\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"


def test_a_cell_added_at_the_end_is_last():
    headers = [line for line in diff(["a"], ["b", "c"], [0, None]).splitlines() if line.startswith("---")]
    assert headers == ["--- nb.ipynb:cell 0", "--- /dev/null"]


def test_a_secret_is_not_shown():
    text = diff([f"token = '{SECRET}'\nx = '/content'"], [f"token = '{SECRET}'\nx = WORK_DIR"])
    assert "-x = '/content'" in text
    assert SECRET not in text
