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
        "pd.read_excel ('/content/in/a b.csv')",
        "cap = cv2.VideoCapture('/content/in/a b.csv')",
        "file_path = '/content/in/a b.csv'\nprint(file_path)\nframe = pd.read_csv(file_path)",
        "image_path = '/content/in/a b.csv'\nimage = any_reader(image_path)",
        "cv2.imread('/content/in/a b.csv')\ncv2.imread('/content/drive/MyDrive/a b.csv')",
        f"import nltk\nnltk.download('stopwords')\n{READ}",
        f"%pip install x\n!pip install y\n{READ}\nother = frame.copy()\nframe.to_csv('/content/b.csv')",
        f"!nvidia-smi\n!ls /content\n!mkdir -p out\n!apt-get install -y x\n!git config --global user.name x\n{READ}",
        f"import requests\nanswer = requests.get(url).json()\nshutil.rmtree('out')\n{READ}",
        f"{READ}\nframe.to_csv('/content/in/a b.csv')",
        f'{READ}\nprint(\'Upload\')\ndef f():\n    """The uploaded data."""\nfiles.download(\'b.csv\')',
        f"!wget -q https://x.org/font.otf\n!git clone https://x.org/y/tools.git\n{READ}",
        f"copy = tensor.clone()\nimport wget, kagglehub\n{READ}",
        f"{READ}  # from the file a b.csv that I download",
        f"model.to_device(f'cuda:{{number}}')\n{READ}",
        f"{READ}\n!unzip x.zip",
        f"prices = yf.download('SPY')\n{READ}",
        f"def f():\n    return 1\n{READ}\n!unzip x.zip",
        f"def load():\n    {READ}\n    return frame\nload()",
        f"{READ}\nfiles.upload()",
        f"pd.read_csv('a b.csv')\n{READ}",
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
        ["path = '/content/in/a b.csv'\nmodel.save(path)\nload_model(path)"],
        ["save_model(model, '/content/in/a b.csv')", READ],
        ["!unzip x.zip", READ],
        ["%%bash\nmake_data", READ],
        ["from google.colab import files\nfiles.upload()", READ],
        ["!python make_data.py", READ],
        ["!wget -q https://x.org/{name}", READ],
        ["!wget -q -i list.txt", READ],
        ["!wget -q https://x.org/a.csv", "pd.read_csv('/content/a.csv')"],
        ["!git clone https://x.org/y/in.git", READ],
        ["!git clone https://x.org/y/$name", READ],
        ["!wget -qO- https://x.org/a | tar xz", READ],
        ["!cp x/* in/", READ],
        ["shutil.copytree('a', 'in')", READ],
        ["with open(f'in/{name}.csv', 'wb') as file:\n    file.write(requests.get(url).content)", READ],
        ["with open(name, 'wb') as file:\n    file.write(requests.get(url).content)", READ],
        ["archive.extractall()", READ],
        ["Repo.clone_from(url, 'in')", READ],
        ["subprocess.run(['python', 'make_data.py'])", READ],
        ["gdown.cached_download(url)", READ],
        ["snapshot_download('x')", READ],
        ["pd.read_csv('/content/drive/MyDrive/a.csv')"],
        ["pd.read_csv(f'/content/{name}.csv')"],
        ["pd.read_csv('in/a.csv')"],
        [f"def load():\n    {READ}\n    return frame", "!unzip x.zip", "load()"],
        ["path = '/content/in/a b.csv'\nf(path)\n!python make_data.py\nload(path)"],
        ["gdown.download(url, '/content/in/a b.csv')", READ],
        ["urlretrieve(url, '/content/in/a b.csv')", READ],
        ["!curl -L $url > '/content/in/a b.csv'", READ],
        ["!python make_data.py --out '/content/in/a b.csv'"],
        ["frame.to_csv('{} b.csv'.format(name))", READ],
        ["frame.to_csv(folder + '/a b.csv')", READ],
    ],
)
def test_other_files(texts):
    assert _listed(*texts) == ()


@pytest.mark.parametrize(
    "text",
    [
        "!unzip '/content/x.zip'",
        "!tar -xf '/content/x.zip' -C in",
        "ZipFile('/content/x.zip').extractall('/content/in.d')",
        "shutil.unpack_archive('/content/x.zip', '/content/in.d')",
        "copyfile('/content/x.zip', '/content/in/a b.csv')",
    ],
)
def test_an_archive_is_listed_and_not_what_it_contains(text):
    assert _listed(f"{text}\n{READ}") == ("x.zip",)


def test_samples_of_colab_are_listed_next_to_any_download():
    name = "sample_data/california_housing_train.csv"
    assert _listed(f"!unzip a.zip\npd.read_csv('{name}')\npd.read_csv('/content/{name}')") == (name,)
    assert _listed(f"# pd.read_csv('{name}')") == ()


def test_a_file_of_the_author_next_to_the_samples_is_listed():
    assert _listed("cv2.imread('/content/sample_data/a.png')") == ("sample_data/a.png",)
