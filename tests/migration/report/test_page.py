from html.parser import HTMLParser

from migration.report.document import NotebookReport, make_report
from migration.report.page import GENERATOR, page
from tests.migration.report_samples import HOSTILE, sample_report

VOID = {"meta", "link", "img", "br"}


class Outline(HTMLParser):
    """The elements of a page, whether they nest, and its text."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_complete_and_loads_nothing():
    html = page(sample_report("LF901"))
    outline = Outline(html)
    assert outline.open == []
    assert not {"script", "link", "img", "iframe"} & set(outline.tags)
    assert not {name for name, _ in outline.attributes} & {"src", "href", "onclick", "onload", "style"}
    assert "http:" not in html
    assert "https:" not in html
    assert GENERATOR in html[:1000]


def test_every_text_is_escaped():
    html = page(sample_report("LF901"))
    assert "<script" not in html
    assert Outline(html).text.count(HOSTILE) >= 3


def test_manual_steps_are_listed_before_the_notebooks():
    text = "".join(Outline(page(sample_report("LF901", hostile="do this now"))).text)
    todo = text.index("For you to do")
    notebooks = text.index("What was found", todo)
    assert todo < text.index("cell 3, line 2", todo) < text.index("do this now", todo) < notebooks
    assert "no notebook: do this now" in text[todo:notebooks]


def test_files_to_copy_and_secrets_to_set_are_listed_for_each_notebook():
    copies = {"drive": {"MyDrive/a.csv": "work/drive/a.csv"}, "content": {"/content/b.csv": "work/b.csv"}}
    notebook = NotebookReport("a.ipynb", "migrated", "local_a.ipynb", secret_names=("A_KEY", "B_KEY"), **copies)
    text = " ".join(Outline(page(make_report([notebook], "write"))).text)
    assert "needs the secrets A_KEY, B_KEY" in text
    todo = text[text.index("For you to do") : text.index("What was found")]
    assert "Nothing." not in todo
    assert (
        "local_a.ipynb copy, unless the notebook makes it to MyDrive/a.csv work/drive/a.csv /content/b.csv work/b.csv"
        in todo
    )


def test_the_page_shows_counts_hardware_requirements_hazards_and_secrets():
    text = " ".join(Outline(page(sample_report("LF901"))).text)
    for part in ("made for a GPU T4", "numpy==1.26", "ffmpeg", "Hazards", "sudo", "Secrets", "Hugging Face token"):
        assert part in text, part


def test_an_empty_report_is_also_a_page():
    text = " ".join(Outline(page(make_report([], "check"))).text)
    assert "Nothing." in text
    assert "A check: nothing was written." in text


def test_code_in_a_sentence_is_formatted_as_code():
    html = page(sample_report("LF901", hostile="`a < b` and `c`"))
    assert "<code>a &lt; b</code> and <code>c</code>" in html
    assert "one ` alone" in page(sample_report("LF901", hostile="one ` alone"))
