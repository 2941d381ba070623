import pytest

from migration.analysis.root_paths import root_paths
from migration.python.source import CellSource


def _paths(*texts, mounts=("/content/drive",)):
    cells = [CellSource(text, index=index) for index, text in enumerate(texts)]
    return {index: sorted(paths) for index, paths in root_paths(cells, mounts).items()}


@pytest.mark.parametrize(
    "text",
    [
        "df = pd.read_csv('/plant/a.csv')",
        "df.to_csv(f'/plant/{name}.csv')",
        "torch.save(1, '/model.pt')",
        "os.makedirs('/results')",
        "for f in glob(os.path.join('/plant', '*.csv')): pass",
        "open('/plant' + name)",
        "open('/plant/%s' % name)",
        "open('/plant/{}'.format(name))",
        "open('/plant'" + 1500 * " + name" + ")",
        "Path('/plant') / 'a.csv'",
        "Trainer(output_dir='/results')",
        "args = {'model_path': '/m/a.pt'}",
        "parser.add_argument('--data', default='/plant')",
        "if not os.path.exists('/plant'): os.makedirs('/plant')",
        "class A:\n    folder = '/plant'\nopen(A.folder)",
    ],
)
def test_a_path_below_the_root_that_code_uses_is_found(text):
    (paths,) = _paths(text).values()
    assert len(paths) == 1
    assert paths[0].startswith("/")


@pytest.mark.parametrize(
    "text",
    [
        "open('/tmp/a'); open('/usr/share/a'); open('/content/a'); open('/mnt/a')",
        "@app.get('/plant')\ndef f(): pass",
        "app.mount('/static', x)",
        "requests.get(host + '/plant'); client.open('/plant')",
        "open(folder + '/a.csv'); open(f'{folder}/a.csv'); open(os.path.join(folder, '/a.csv'))",
        "re.sub('/plant', '', x); x.replace('/a', '/b'); x.startswith('/plant')",
        "tree.xpath('/html/body'); read_xml(f, xpath='/a/b')",
        "tf.device('/device:GPU:0'); load('/a?b=c'); open('/a: b')",
        "f.write('/plant/a.csv'); print('/plant')",
        "api = '/plant'\nget(url + api)",
        "if os.path.exists('/kaggle'): folder = '/kaggle/input'\nopen(folder)",
        "ftp.mkdir('/a')",
        "# open('/plant')",
        "open('/plant'",
    ],
)
def test_other_texts_with_a_slash_are_no_paths(text):
    assert _paths(text) == {}


def test_a_name_is_followed_through_cells_and_other_names():
    found = _paths("base = '/plant'", "folder = os.path.join(base, 'x')", "path = folder + '/a.csv'", "open(path)")
    assert found == {0: ["/plant"]}


def test_the_mount_point_of_the_drive_is_no_folder_of_the_machine():
    assert _paths("open('/googledrive/a')", mounts=("/googledrive",)) == {}
    assert _paths("open('/googledrive/a')") == {0: ["/googledrive/a"]}
