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


def test_secrets_that_the_handler_of_the_author_reads_are_named():
    text = (
        "try:\n    from google.colab import userdata\n    a = userdata.get('A_KEY')\n"
        "except ImportError:\n    import os\n    a = os.environ['A_KEY']\n    b = os.getenv('B_TOKEN')\n"
        "    c = os.environ.get('HOME')\n"
    )
    cells = [CellSource(text, index=0)]
    assert secret_names(cells, collect_facts(cells).colab) == ("A_KEY", "B_TOKEN")


def test_variables_of_a_handler_without_secrets_on_colab_are_not_named():
    text = "try:\n    import google.colab\n    a = 1\nexcept ImportError:\n    a = os.environ['A_KEY']\n"
    cells = [CellSource(text, index=0)]
    assert secret_names(cells, collect_facts(cells).colab) == ()
