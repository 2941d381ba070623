import pytest

from migration.notebook.findings import Finding, Keeps
from migration.python.source import CellSource
from migration.report.drive import drive_files

FILE = "/content/drive/MyDrive/a.csv"


def _listed(*texts):
    cells = [CellSource(text, index=index) for index, text in enumerate(texts)]
    findings = [Finding("LF402", Keeps.EXACT, cell.index, 1, "", before=cell.text) for cell in cells]
    return drive_files(findings, cells)


@pytest.mark.parametrize(
    "text",
    [
        f"frame.to_csv('{FILE}', index=False)",
        f"frame.to_parquet(path='{FILE}')",
        f"plt.savefig('{FILE}')",
        f"np.save('{FILE}', values)",
        f"torch.save(model.state_dict(), '{FILE}')",
        f"plot_model(model, to_file='{FILE}', show_shapes=False)",
        f"!aria2c https://x.org/a -o '{FILE}'",
        f"shutil.rmtree('{FILE}')",
        f"shutil.copytree(source, '{FILE}', dirs_exist_ok=True)",
        f"drive.mount('{FILE}')",
        f"!cp scores.csv {FILE} 2>/dev/null || true",
        f"!git clone https://x.org/a/b.git {FILE}\nsys.path.append('{FILE}/src')",
        "open('H:/My Drive/a.csv')",
        f"open('{FILE}', 'w').write(text)",
        f"with open('{FILE}', mode='wb') as file:\n    pickle.dump(model, file)",
        f"shutil.copy(source, '{FILE}')",
        f"shutil.move(source, dst='{FILE}')",
        f"Path('{FILE}').write_text(text)",
        f"os.makedirs('{FILE}', exist_ok=True)",
        f"!cp scores.csv {FILE}",
        f"OUT = '{FILE}'\nprint(OUT)\nframe.to_csv(OUT)",
        f"plt.savefig('{FILE}')\nfiles.download('{FILE}')",
        f"OUT = '{FILE}'\nframe.to_csv(OUT)\nfiles.download(OUT)",
        f"open('{FILE}', 'a')",
        f"open('{FILE}' + str(number), 'a')",
        f"best = ModelCheckpoint(\n    monitor='loss',\n    filepath='{FILE}',\n)\nmodel.fit(callbacks=[best])",
        f"out = cv2.VideoWriter('{FILE}', code, 20, size)\nout.write(frame)",
        f"PATH = '{FILE}'\ntorch.save({{\n    'epoch': epoch,\n}}, PATH)\n# torch.load(PATH)",
        f"settings['outdir_images'] = '{FILE}'",
        f"TrainingArguments(output_dir='{FILE}', epochs=2)",
        f"path = input('Which file (such as {FILE})? ')",
        f"# pd.read_csv('{FILE}')",
        f"OUT = '{FILE}'\nframe.to_csv(OUT)\nprint(os.listdir(OUT))\n!ls {{OUT}}",
        f"path = '{FILE}'\nframe.to_csv(path)\npd.read_csv(path)",
        f"path = '{FILE}'\nframe.to_csv(path)\n!cat {{path}}",
        f"path = '{FILE}'",
        f"path = '{FILE}'\nother = path",
        f"path = '{FILE}'\nframe.to_csv(path)\nos.path.isdir(self.path)",
        f"path = '{FILE}'\nos.makedirs(os.path.dirname(path), exist_ok=True)\nopen(path, 'w')\nopen(path)",
        f"frame.to_csv ('{FILE}')\npd.read_csv('{FILE}')",
        f"with zipfile.ZipFile('{FILE}', 'w') as archive:\n    pass",
        f"TrainingArguments(logging_dir='{FILE}')\nTensorBoard(log_dir='{FILE}')",
        f"!zip -r -q {FILE} out",
        f"!tar czf {FILE} out",
        f"!unzip -q a.zip -d '{FILE}'",
        f"'''\npd.read_csv('{FILE}')\n'''",
        "made = '/content/drive/MyDrive/d'\nif not os.path.exists(made):\n    os.makedirs(made)\nload(made)",
    ],
)
def test_a_file_that_is_written_first(text):
    assert _listed(text) == ()


def test_a_path_ends_before_a_line_break_or_a_full_stop():
    text = r"raise ValueError('nothing in /content/drive/MyDrive/a b.\nCopy it. See /content/drive/MyDrive/c.\nStop')"
    assert _listed(text) == ("MyDrive/a", "MyDrive/c")
    assert _listed(r"!cp /content/drive/MyDrive/a\ b.csv .") == ("MyDrive/a b.csv",)


@pytest.mark.parametrize(
    "text",
    [
        f"frame = pd.read_csv('{FILE}')",
        f"open('{FILE}')",
        f"open('{FILE}', mode)",
        f"open('{FILE}', 'r+')",
        f"set_of(path='{FILE}', output='b.csv')",
        f"video = cv2.VideoCapture('{FILE}')\nvideo.release()",
        f"shutil.copy('{FILE}', target)",
        f"list.copy('{FILE}', '{FILE}')",
        f"frame.to_csv(first_of(pd.read_csv('{FILE}')))",
        f"!cp {FILE} .",
        f"!mv {FILE}",
        f"!zip -r out.zip {FILE}",
        f"!tar xzf {FILE}",
        f"!unzip {FILE} -d out",
        f"class A:\n    path = '{FILE}'\nload(A.path)",
        "!cp /content/drive/'My Drive'/a.csv .",
        '!cp /content/drive/"MyDrive"/a.csv .',
        f"files.download('{FILE}')",
        f"path = '{FILE}'\nfiles.download(path)",
        f"path = '{FILE}'\nframe = pd.read_csv(path)\nframe.to_csv(path)",
    ],
)
def test_a_file_that_may_be_read(text):
    assert _listed(text) == ("MyDrive/a.csv",)


def test_a_computed_name_is_listed_as_its_folder():
    assert _listed("open('/content/drive/MyDrive/in/k' + str(k) + '.png')") == ("MyDrive/in",)
    assert _listed("open('/content/drive/MyDrive/k' + str(k) + '.png')") == ()
    assert _listed("open('/content/drive/MyDrive/in/' + name)") == ("MyDrive/in",)
    assert _listed("open('/content/drive/MyDrive/in' + '/a.png')") == ("MyDrive/in/a.png",)


def test_names_are_followed_through_the_cells():
    cells = ["FOLDER = '/content/drive/MyDrive/out'", "OUT = os.path.join(FOLDER, 'b.csv')", "frame.to_csv(OUT)"]
    assert _listed(*cells) == ("MyDrive/out",)
    assert _listed(*cells, "os.makedirs(FOLDER)") == ()
    assert _listed(*cells, "names = os.listdir(FOLDER)") == ("MyDrive/out",)
    assert _listed(*cells, "print 'Python 2', FOLDER") == ("MyDrive/out",)


def test_a_folder_that_files_are_copied_into_is_listed():
    assert _listed("!cp -r out/* /content/drive/MyDrive/model/") == ("MyDrive/model",)


def test_a_folder_below_a_listed_one_is_not_listed_again():
    enter = "%cd /content/drive/MyDrive/p"
    assert _listed(enter, "load('/content/drive/MyDrive/p/images')") == ("MyDrive/p",)
    assert _listed(enter, "load('/content/drive/MyDrive/p/a.csv')") == ("MyDrive/p", "MyDrive/p/a.csv")


def test_a_folder_that_is_only_written_to_is_listed_unless_it_is_created():
    write = "frame.to_csv('/content/drive/MyDrive/out/deep/b.csv')"
    assert _listed(write) == ("MyDrive/out/deep",)
    assert _listed("os.makedirs('/content/drive/MyDrive/out/deep', exist_ok=True)", write) == ()
    assert _listed("!mkdir -p /content/drive/MyDrive/out/deep", write) == ()
    assert _listed("os.mkdir('/content/drive/MyDrive/out/deep')", write) == ("MyDrive/out",)
    assert _listed("pd.read_csv('/content/drive/MyDrive/out/deep/a.csv')", write) == ("MyDrive/out/deep/a.csv",)


def test_the_folder_of_cd_may_contain_blanks():
    assert _listed("%cd /content/drive/MyDrive/YOLOv8 Training") == ("MyDrive/YOLOv8 Training",)


@pytest.mark.parametrize(
    "use",
    [
        "pd.read_csv(BASE + 'a.csv')",
        'pd.read_csv(f"{BASE}a.csv")',
        "!cp {BASE}a.csv .",
        "pd.read_csv(os.path.join(BASE, 'a.csv'))",
        "pd.read_csv(BASE + '/a.csv')",
        "PATH = BASE + 'a.csv'\npd.read_csv(PATH)",
        "def f():\n    return load(BASE + 'a.csv')",
        "pd.read_csv(BASE + 'a.csv')\nframe.to_csv(BASE + 'a.csv')",
    ],
)
def test_a_name_joined_with_a_text_names_a_file(use):
    assert _listed("BASE = '/content/drive/MyDrive/'", use) == ("MyDrive/a.csv",)
    assert _listed("BASE = '/content/drive/MyDrive/in/'", use) == ("MyDrive/in/a.csv",)
    assert _listed("BASE = '/content/drive/MyDrive/in/'", use, "print(os.listdir(BASE))\nload(BASE)") == (
        "MyDrive/in/a.csv", "MyDrive/in",
    )  # fmt: skip


@pytest.mark.parametrize(
    "use",
    [
        "load(os.path.join('/content/drive/MyDrive', 'a.csv'))",
        "p = '/content/drive/MyDrive'\nload(os.path.join(p, 'a.csv'))",
        "p = '/content/drive/MyDrive'\nload(p + '/a.csv')",
        "p = '/content/drive/MyDrive'\nload(f'{p}/a.csv')",
    ],
)
def test_a_file_of_the_root_of_the_drive_is_listed(use):
    assert _listed(use) == ("MyDrive/a.csv",)


def test_a_folder_that_another_value_of_a_name_creates_is_listed():
    first, second = (f"d = '/content/drive/MyDrive/{name}'" for name in ("a", "b"))
    assert _listed(first, "os.makedirs(d)", second, "load(d)") == ("MyDrive/a", "MyDrive/b")


def test_names_of_folders_below_a_named_folder_are_followed():
    cells = ["BASE = '/content/drive/MyDrive/in'", "SUB = BASE + '/sub'", "load(os.path.join(SUB, 'deep', 'a.csv'))"]
    assert _listed(*cells) == ("MyDrive/in/sub/deep/a.csv",)


def test_a_chain_of_names_in_many_cells_takes_no_longer_than_its_lines():
    assert _listed(*["p = '/content/drive/MyDrive/a'\nq = p\nr = q\ns = r\nload(s)"] * 200) == ("MyDrive/a",)


def test_a_name_with_two_values_is_not_joined():
    cells = ["BASE = '/content/drive/MyDrive/'", "BASE = '/content/drive/MyDrive/x/'", "load(BASE + 'a.csv')"]
    assert _listed(*cells) == ("MyDrive/x",)


def test_a_folder_that_the_notebook_clones_and_enters_is_not_listed():
    cells = ["%cd /content/drive/MyDrive/a/b", "%cd /content/drive/MyDrive/a", "!git clone https://x.org/c/b.git"]
    assert _listed(*cells) == ("MyDrive/a",)
    assert _listed("!cp -r /content/drive/MyDrive/b .", cells[-1]) == ("MyDrive/b",)
