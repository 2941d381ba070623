from migration.analysis.facts import collect_facts
from migration.analysis.userdata import secret_names
from migration.python.source import CellSource


def test_each_secret_is_named_once():
    texts = [
        "from google.colab import userdata as secrets",
        "a = secrets.get('B_KEY')\nb = secrets.get(key='A_KEY')",
        "a = secrets.get('B_KEY')\nc = secrets.get(name)\nd = settings.get('OTHER')",
    ]
    cells = [CellSource(text, index=index) for index, text in enumerate(texts)]
    assert secret_names(cells, collect_facts(cells).colab) == ("B_KEY", "A_KEY")
