import pytest

from migration.python.source import CellSource
from migration.report.content import content_files

READ = "frame = pd.read_csv('/content/in/a b.csv')"


def _listed(*texts):
    return content_files([CellSource(text, index=index) for index, text in enumerate(texts)])


@pytest.mark.parametrize(
    "text",
    [
        READ,
        f"{READ}\n{READ}",
        "with open('/content/in/a b.csv') as file:\n    a(file)",
        "open('/content/in/a b.csv', 'r')",
        'cv2.imread( r"/content/in/a b.csv")',
        f"import nltk\nnltk.download('stopwords')\n{READ}",
        f"%pip install x\n!pip install y\n{READ}\nother = frame.copy()\nframe.to_csv('/content/b.csv')",
        f"{READ}  # from the file a b.csv that I download",
    ],
)
def test_a_file_that_no_cell_creates(text):
    assert _listed(text) == ("in/a b.csv",)


@pytest.mark.parametrize(
    "texts",
    [
        [f"# {READ}"],
        ["frame.to_csv('/content/in/a b.csv')", READ],
        ["open('/content/in/a b.csv', 'w').write(text)"],
        ["open('/content/in/a b.csv', mode='a')"],
        ["name = 'a b.csv'\nwrite(name)", READ],
        ["!unzip x.zip", READ],
        ["%%bash\nmake_data", READ],
        ["from google.colab import files\nfiles.upload()", READ],
        ["archive.extractall()", READ],
        ["snapshot_download('x')", READ],
        ["pd.read_csv('/content/drive/MyDrive/a.csv')"],
        ["pd.read_csv('/content/sample_data/a.csv')"],
        ["pd.read_csv(f'/content/{name}.csv')"],
        ["pd.read_csv('in/a.csv')"],
    ],
)
def test_other_files(texts):
    assert _listed(*texts) == ()
