import os
from pathlib import Path

import pytest

from core.errors import UsageError
from migration.planning import local_path, make_plan


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def touch(*names: str) -> list[Path]:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("{}", encoding="utf-8")
    return [Path(name) for name in names]


def outputs(plan) -> dict[str, str]:
    return {task.input.as_posix(): task.output.as_posix() for task in plan.tasks}


@pytest.mark.parametrize(
    "name, expected",
    [
        ("colab_train.ipynb", "local_train.ipynb"),
        ("Colab-train.ipynb", "local_train.ipynb"),
        ("train.ipynb", "local_train.ipynb"),
        ("colaboration.ipynb", "local_colaboration.ipynb"),
        ("colab_.ipynb", "local_colab_.ipynb"),
        ("local_train.ipynb", "local_train_local.ipynb"),
        ("train.json", "local_train.ipynb"),
    ],
)
def test_the_default_output_name_is_next_to_the_input(name, expected):
    assert local_path(Path("a", name)) == Path("a", expected)


def test_a_folder_stands_for_its_notebooks_but_not_for_hidden_ones():
    touch(
        "nb/b.ipynb", "nb/a.IPYNB", "nb/deep/er/c.ipynb", "nb/notes.txt", "nb/.hidden/d.ipynb",
        "nb/.ipynb_checkpoints/b-checkpoint.ipynb", "nb/._a.ipynb",
    )  # fmt: skip
    assert outputs(make_plan([Path("nb")])) == {
        "nb/a.IPYNB": "nb/local_a.ipynb",
        "nb/b.ipynb": "nb/local_b.ipynb",
        "nb/deep/er/c.ipynb": "nb/deep/er/local_c.ipynb",
    }


def test_an_output_folder_mirrors_the_input_folder():
    touch("nb/a.ipynb", "nb/deep/a.ipynb", "other.ipynb")
    plan = make_plan([Path("nb"), Path("other.ipynb")], out_dir=Path("out"))
    assert outputs(plan) == {
        "nb/a.ipynb": "out/a.ipynb",
        "nb/deep/a.ipynb": "out/deep/a.ipynb",
        "other.ipynb": "out/other.ipynb",
    }


def test_notebooks_with_equal_names_keep_their_folders():
    names = touch("course/en/1/a.ipynb", "course/fr/1/a.ipynb", "course/fr/b.ipynb")
    assert outputs(make_plan(names, out_dir=Path("out"))) == {
        "course/en/1/a.ipynb": "out/en/1/a.ipynb",
        "course/fr/1/a.ipynb": "out/fr/1/a.ipynb",
        "course/fr/b.ipynb": "out/b.ipynb",
    }
    Path("link").symlink_to("course/en/1")
    assert outputs(make_plan([names[0], Path("link/a.ipynb")], out_dir=Path("out"))) == {
        "course/en/1/a.ipynb": "out/a.ipynb"
    }


def test_outputs_of_an_earlier_run_are_not_inputs():
    touch("a.ipynb", "made/a.ipynb", "made/b/c.ipynb")
    assert outputs(make_plan([Path()], out_dir=Path("made"))) == {"a.ipynb": "made/a.ipynb"}


def test_local_notebooks_next_to_their_originals_are_skipped_with_a_message():
    touch("nb/colab_a.ipynb", "nb/local_a.ipynb", "nb/local_attention.ipynb")
    for inputs in ([Path("nb")], sorted(Path("nb").iterdir())):
        plan = make_plan(inputs)
        assert outputs(plan) == {
            "nb/colab_a.ipynb": "nb/local_a.ipynb",
            "nb/local_attention.ipynb": "nb/local_attention_local.ipynb",
        }
        (left_out,) = plan.left_out
    assert left_out.startswith("nb/local_a.ipynb is skipped")
    assert "colab_a.ipynb" in left_out


def test_a_local_notebook_named_explicitly_is_an_input():
    touch("colab_a.ipynb", "local_a.ipynb")
    assert outputs(make_plan([Path("local_a.ipynb")])) == {"local_a.ipynb": "local_a_local.ipynb"}


def test_all_notebooks_are_migrated_into_another_folder():
    touch("nb/a.ipynb", "nb/local_a.ipynb")
    plan = make_plan([Path("nb")], out_dir=Path("out"))
    assert (len(plan.tasks), plan.left_out) == (2, ())


def test_one_notebook_named_twice_is_migrated_once():
    touch("nb/a.ipynb")
    Path("link.ipynb").symlink_to("nb/a.ipynb")
    plan = make_plan([Path("nb/a.ipynb"), Path("nb"), Path("nb/../nb/a.ipynb"), Path("link.ipynb")])
    assert outputs(plan) == {"nb/a.ipynb": "nb/local_a.ipynb"}


@pytest.mark.parametrize("make_link", [os.symlink, os.link])
def test_an_output_that_is_an_input_is_rejected_also_through_a_link(make_link):
    touch("a.ipynb", "b.ipynb")
    make_link(Path("a.ipynb").absolute(), "alias.ipynb")
    for name in ("a.ipynb", "alias.ipynb", "./x/../a.ipynb"):
        plan = make_plan([Path("a.ipynb")], output=Path(name))
        assert plan.tasks == ()
        assert "is an input" in plan.failed[0].error


def test_an_output_folder_equal_to_the_inputs_is_rejected():
    touch("nb/a.ipynb")
    Path("back").symlink_to("nb")
    for folder in ("nb", "back"):
        plan = make_plan([Path("nb/a.ipynb")], out_dir=Path(folder))
        assert "never changed" in plan.failed[0].error


def test_the_output_of_one_input_is_not_another_input():
    touch("a/x.ipynb", "out/x.ipynb")
    plan = make_plan([Path("a"), Path("out/x.ipynb")], out_dir=Path("out"))
    assert plan.tasks == ()
    assert [failure.input for failure in plan.failed] == ["a/x.ipynb", "out/x.ipynb"]


def test_two_inputs_never_share_an_output():
    touch("colab_x.ipynb", "x.ipynb", "y.ipynb")
    plan = make_plan([Path("colab_x.ipynb"), Path("x.ipynb"), Path("y.ipynb")])
    assert outputs(plan) == {"colab_x.ipynb": "local_x.ipynb", "y.ipynb": "local_y.ipynb"}
    assert plan.failed[0].input == "x.ipynb"
    assert "local_x.ipynb is already that of colab_x.ipynb" in plan.failed[0].error


def test_missing_inputs_fail_and_the_others_are_planned():
    touch("a.ipynb")
    Path("dangling.ipynb").symlink_to("nowhere.ipynb")
    plan = make_plan([Path("gone.ipynb"), Path("a.ipynb"), Path("dangling.ipynb")])
    assert [failure.input for failure in plan.failed] == ["gone.ipynb", "dangling.ipynb"]
    assert outputs(plan) == {"a.ipynb": "local_a.ipynb"}


def test_every_notebook_is_checked_without_an_output():
    touch("colab_a.ipynb", "local_a.ipynb")
    plan = make_plan([Path()], writes=False)
    assert [(task.input.name, task.output) for task in plan.tasks] == [
        ("colab_a.ipynb", None),
        ("local_a.ipynb", None),
    ]


def test_one_output_is_for_one_notebook():
    touch("a.ipynb", "b.ipynb", "folder/c.ipynb")
    with pytest.raises(UsageError, match="-o is "):
        make_plan([Path("a.ipynb"), Path("b.ipynb")], output=Path("out.ipynb"))
    with pytest.raises(UsageError, match="-o is "):
        make_plan([Path("folder")], output=Path("out.ipynb"))
    with pytest.raises(UsageError, match="folder is a folder"):
        make_plan([Path("a.ipynb")], output=Path("folder"))


def test_a_folder_that_cannot_be_read_is_reported(monkeypatch):
    touch("nb/closed/a.ipynb", "nb/b.ipynb")
    scandir = os.scandir

    def refuse(path):
        if not isinstance(path, int) and Path(path).name == "closed":  # rmtree gives descriptors
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    plan = make_plan([Path("nb")])
    assert outputs(plan) == {"nb/b.ipynb": "nb/local_b.ipynb"}
    assert [(failure.input, failure.error) for failure in plan.failed] == [("nb/closed", "Permission denied")]
