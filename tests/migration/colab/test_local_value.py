import ast

import pytest

from migration.colab.local_value import Answer, answer, only_looks


def _answer(text, flags=()):
    known = dict(flags)

    def flag_of(node):
        return Answer(known[node.id]) if isinstance(node, ast.Name) and node.id in known else None

    return answer(ast.parse(text, mode="eval").body, flag_of)


@pytest.mark.parametrize(
    "text, value",
    [
        ("'google.colab' in sys.modules", False),
        ("'google.colab' not in sys.modules.keys()", True),
        ("not 'google.colab' in sys.modules", True),
        ("'google.colab' in str(get_ipython())", False),
        ("'google.colab' in str(ipy)", False),
        ("'google.colab' not in repr(ip)", True),
        ("'colab' in get_ipython().__class__.__module__", False),
        ("get_ipython().__class__.__module__ == 'google.colab._shell'", False),
        ("type(get_ipython()).__module__.startswith('google.colab')", False),
        ("importlib.util.find_spec('google.colab')", None),
        ("importlib.util.find_spec('google.colab') is None", True),
        ("'COLAB_GPU' in os.environ", False),
        ("'COLAB_' in ''.join(os.environ.keys())", False),
        ("any(key.startswith('COLAB_') for key in os.environ)", False),
        ("os.getenv('COLAB_RELEASE_TAG')", None),
        ("os.environ.get('COLAB_GPU', '0') == '1'", False),
        ("bool(os.getenv('COLAB_GPU'))", False),
        ("sys.modules.get('google.colab') is not None", False),
        ("'google.colab' in sys.modules and train()", False),
        ("os.path.exists(p) and 'google.colab' in sys.modules", False),
        ("x > 1 or 'google.colab' not in sys.modules", True),
        ("IN or 'google.colab' in sys.modules", False),
        ("IN", False),
        ("not IN", True),
    ],
)
def test_the_value_outside_colab(text, value):
    found = _answer(text, [("IN", False)])
    assert found is not None
    assert found.value is value


@pytest.mark.parametrize(
    "text",
    [
        "True",
        "x > 1",
        "not x",
        "'google.colab' in text",
        "'colab' in url",
        "'kaggle_secrets' in sys.modules",
        "os.getenv('HOME')",
        "importlib.util.find_spec('torch') is None",
        "'google.colab' in sys.modules or x",
        "train() and 'google.colab' in sys.modules",
        "x and False",
        "os.environ['COLAB_GPU']",
        "any(line.startswith('COLAB_') for line in lines)",
    ],
)
def test_conditions_without_a_known_answer_have_no_value(text):
    assert _answer(text) is None


@pytest.mark.parametrize(
    "text, looks", [("a.b > 1", True), ("os.path.exists(x)", True), ("train()", False), ("(a := 1)", False)]
)
def test_expressions_that_only_look_are_recognised(text, looks):
    assert only_looks(ast.parse(text, mode="eval").body) is looks
