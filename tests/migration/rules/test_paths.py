import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration.analysis.facts import NotebookFacts, collect_facts
from migration.colab.paths import DEFAULT_MOUNTS
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import paths
from migration.rules.paths import needs_drive_links
from migration.rules.rewriting import rewrite

ROOT = "/" + "content"
WORK, DRIVE = "/machine/work folder", "/machine/my drive"


def migrated(text, *, mounts=DEFAULT_MOUNTS, kind="code", language="python"):
    facts = NotebookFacts(mounts=mounts, language=language)
    source = CellSource(text, language=language)
    new, found = rewrite(source, cell_type=kind, rules=paths.RULES, facts=facts)
    again, repeated = rewrite(new, cell_type=kind, rules=paths.RULES, facts=NotebookFacts(language=language))
    assert again is new
    assert not any(finding.changed for finding in repeated)
    return new.text, found


def _evaluated(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, {"WORK_DIR": WORK, "DRIVE_DIR": DRIVE, "name": "n{a}me", "number": 3})


@pytest.mark.parametrize(
    "before, after",
    [
        ("'/content'", "WORK_DIR"),
        ("'/content/'", "f'{WORK_DIR}/'"),
        ("'/content/x'", "f'{WORK_DIR}/x'"),
        ('"""/content/x"""', 'f"""{WORK_DIR}/x"""'),
        ("u'/content/x'", "f'{WORK_DIR}/x'"),
        (r"r'/content/\d{2}'", r"rf'{WORK_DIR}/\d{{2}}'"),
        (r"R'/content/\d'", r"Rf'{WORK_DIR}/\d'"),
        ("f'/content'", "WORK_DIR"),
        ("f'/content/{name}/{number:02d}{{}}'", "f'{WORK_DIR}/{name}/{number:02d}{{}}'"),
        (r"rf'/content/{name}\d'", r"rf'{WORK_DIR}/{name}\d'"),
        ("'/content/{}/{{x}}'.format(name)", "f'{WORK_DIR}/{{}}/{{{{x}}}}'.format(name)"),
        ("'/content/%s.txt' % name", "f'{WORK_DIR}/%s.txt' % name"),
        ("'/content/' + name", "f'{WORK_DIR}/' + name"),
        ("'cd ' + '/content/x'", "'cd ' + f'{WORK_DIR}/x'"),
        ("('/content/a' 'b{c}')", "(f'{WORK_DIR}/a' 'b{c}')"),
        ("('/content' '/b')", "(f'{WORK_DIR}' '/b')"),
        ("('cd '\n '/content/b')", "('cd '\n f'{WORK_DIR}/b')"),
        ("f\"{str('/content')}/{str('/content/z')}\"", "f\"{str(WORK_DIR)}/{str(f'{WORK_DIR}/z')}\""),
        (r"'\N{BULLET} /content/x {y}'", r"f'\N{BULLET} {WORK_DIR}/x {{y}}'"),
        (r"'cd\n/content/x\t/content'", r"f'cd\n{WORK_DIR}/x\t{WORK_DIR}'"),
        (r"'\"/content/x\" \'{z}\''", r"f'\"{WORK_DIR}/x\" \'{{z}}\''"),
        ("{'/content': ['/content/b']}", "{WORK_DIR: [f'{WORK_DIR}/b']}"),
        ("1 if name=='/content'else 2", "1 if name==WORK_DIR else 2"),
        ("(lambda path='/content/x': path)()", "(lambda path=f'{WORK_DIR}/x': path)()"),
        ("'/content/a'.replace('/content/', '')", "f'{WORK_DIR}/a'.replace(f'{WORK_DIR}/', '')"),
        ("['--data=/content/x', '-o/content/y']", "[f'--data={WORK_DIR}/x', f'-o{WORK_DIR}/y']"),
        ("'-I/content/i -Wl,-rpath,/content/l'", "f'-I{WORK_DIR}/i -Wl,-rpath,{WORK_DIR}/l'"),
        ("':/content/a:/content/b'", "f':{WORK_DIR}/a:{WORK_DIR}/b'"),
        ("'file:///content/x'", "f'file://{WORK_DIR}/x'"),
        ("'train: /content/t\\npath: {a: /content/b}'", "f'train: {WORK_DIR}/t\\npath: {{a: {WORK_DIR}/b}}'"),
        ("'Saved in /content/x.'", "f'Saved in {WORK_DIR}/x.'"),
        ("'保存先：/content/x'", "f'保存先：{WORK_DIR}/x'"),
        ("'/content/drive/MyDrive/x'", "f'{DRIVE_DIR}/x'"),
        ("'/content/gdrive/My Drive/a b'", "f'{DRIVE_DIR}/a b'"),
        ("'/content/drive/MyDrive'", "DRIVE_DIR"),
        ("'/content/drive'", "DRIVE_DIR"),
        ("'/gdrive/My Drive/x'", "f'{DRIVE_DIR}/x'"),
        ("'/content/drive/Shareddrives/x'", "f'{DRIVE_DIR}/Shareddrives/x'"),
        ("'./drive/My Drive/y'", "f'{DRIVE_DIR}/y'"),
        ("'drive/MyDrive/y'", "f'{DRIVE_DIR}/y'"),
        ("('/content/x', '/content/drive/MyDrive/y')", "(f'{WORK_DIR}/x', f'{DRIVE_DIR}/y')"),
    ],
)
def test_strings_use_the_local_folders(before, after):
    new, found = migrated(f"x = {before}")
    assert new == f"x = {after}"
    assert all(finding.changed and finding.rule == "LF402" for finding in found)
    value = _evaluated(after)
    plain = _evaluated(before)
    assert str(value) == _with_folders(str(plain))


def _with_folders(text):
    """The same text where Colab's folders are replaced one by one."""
    for path in ("/content/drive/MyDrive", "/content/gdrive/My Drive", "/gdrive/My Drive", "./drive/My Drive"):
        text = text.replace(path, DRIVE)
    text = text.replace("drive/MyDrive", DRIVE).replace("/content/drive", DRIVE)
    return text.replace(ROOT, WORK)


@pytest.mark.parametrize(
    "text",
    [
        "x = 'https://a.b/content/y'",
        "x = 'https://a.b/?path=/content/y'",
        "x = './content', '../content/x', 'foo/content/bar', '~/content'",
        "x = '/contents', '/content-type', '/content_images', '/content.json'",
        "x = f'{base}/content/x', '{}/content'.format(base), '%s/content' % base",
        "x = 'C:/content/x', 'user@host:/content/x', '$HOME/content'",
        "x = ('https://a.b' '/content/x')",
        r"x = 'https:\/\/a.b\/content\/y'",
        "x = total /content",
        "x = '/gdrive/x', 'drive/x', 'MyDrive'",
        "x = f'<content>{base}</content>Go on', '</content:encoded>', 'a</content', '<content />'",
        r"x = '<\/content>'",
        "print(1)  # in <content>a</content>",
        "!echo '<content>a</content>'; echo \"</content>\"",
        "",
        "x = 1  # nothing",
    ],
)
def test_texts_that_only_look_like_folders_are_unchanged(text):
    assert migrated(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "x = base + '/content/x'",
        "x += '/content/x'",
        "run('cp /content/x y'.split())",
        "x = f\"{base + '/content/x'}\"",
        "@app.route('/content')\ndef f(): pass",
        r"x = b'/content/\xff'",
        r"x = 's/a/\/content\/b/'",
        "A text.\n<img width=2 src='/content/x.png'>",
        "<script>\nlet x = '/content/x';\n</script>",
    ],
)
def test_ambiguous_paths_are_a_manual_step(text):
    new, (finding,) = migrated(text)
    assert new == text
    assert finding.keeps is Keeps.NEEDS_HUMAN
    assert finding.action


def test_shell_commands_quote_the_folder():
    assert migrated("os.system('cp /content/a \"/content/b\" {x}')")[0] == (
        'os.system(f\'cp "{WORK_DIR}"/a "{WORK_DIR}/b" {{x}}\')'
    )
    assert migrated("subprocess.run(f\"ls /content/{x} '/content/y'\", shell=True)")[0] == (
        "subprocess.run(f\"ls '{WORK_DIR}'/{x} '{WORK_DIR}/y'\", shell=True)"
    )
    assert migrated("subprocess.run(['ls', '/content'])")[0] == "subprocess.run(['ls', WORK_DIR])"


@pytest.mark.parametrize(
    "run", ["!$cmd", "a()\n! {cmd}", "os.system(cmd)", "subprocess.run(cmd, check=True, shell=True)"]
)
@pytest.mark.parametrize(
    "before, after",
    [
        ("cmd = 'rm -r /content/a'", "cmd = f'rm -r \"{WORK_DIR}\"/a'"),
        ("cmd = 'rm -r ' + '/content/a' + b", "cmd = 'rm -r ' + f'\"{WORK_DIR}\"/a' + b"),
        ("cmd += f' \"/content/{a}\"'", "cmd += f' \"{WORK_DIR}/{a}\"'"),
        ("cmd = '/content/a'", "cmd = f'{WORK_DIR}/a'"),
        ("cmd = f'cp \"{a}\" ' + '/content/a'", "cmd = f'cp \"{a}\" ' + f'\"{WORK_DIR}\"/a'"),
        ("cmd = 'cp \"' + '/content/a' + '\" b'", "cmd = 'cp \"' + f'{WORK_DIR}/a' + '\" b'"),
        ("cmd = \"cp '\" + '/content/a' + \"' b\"", "cmd = \"cp '\" + f'{WORK_DIR}/a' + \"' b\""),
        ("cmd = f'cp \"{a}' + '/content/a' + '\" b'", "cmd = f'cp \"{a}' + '/content/a' + '\" b'"),
        ("cmd = 'cp \"%s\" b' % '/content/a'", "cmd = 'cp \"%s\" b' % f'{WORK_DIR}/a'"),
        ("cmd = 'rm %s /content/a' % b", "cmd = f'rm %s \"{WORK_DIR}\"/a' % b"),
        ("cmd = ['a b', '/content/a']", "cmd = ['a b', f'{WORK_DIR}/a']"),
        ("other = 'rm -r /content/a'", "other = f'rm -r {WORK_DIR}/a'"),
        ("other = '/content/drive/My\\ Drive/' + b", "other = f'\"{DRIVE_DIR}\"/' + b"),
        ("f('/content/drive/My\\ Drive/a')", "f(f'{DRIVE_DIR}/a')"),
    ],
)
def test_a_command_in_a_variable_quotes_the_folder(before, after, run):
    sources = [CellSource(before), CellSource(run, index=1)]
    facts = collect_facts(sources)
    assert rewrite(sources[0], cell_type="code", rules=paths.RULES, facts=facts)[0].text == after


@pytest.mark.parametrize(
    "text, lines",
    [
        ("def f():\n    '''Reads /content/x {y}.'''\n    return a  # of /content", [2, 3]),
        ('"""\n{\n  "image": "/content/x.png",\n}\n"""', [3]),
        ("'''\nimwrite(join('/content/x', name))\n!cp /content/y .\n'''\nrun()", [2, 3]),
        ("# see /content/x and /content/drive/MyDrive/y", [1]),
        ("a = b  # /content/drive", [1]),
        ('# "/content/x" is the folder', [1]),
        ('# e.g.: "/content/x"', [1]),
        ("# it's in '/content'", [1]),
        ("# ls /content before the download", [1]),
        ("# rm - removes /content/a", [1]),
        ("# unzip the file /content/a.zip", [1]),
        ("# !a\n# from /content/x", [2]),
        ("x = 1 # one of ['/content/a']", [1]),
        ("x = 1 # param: {options: ['/content/a']}", [1]),
        ("# On Colab, the home folder is /content/", [1]),
    ],
)
def test_prose_in_code_cells_stays_and_is_reported(text, lines):
    new, found = migrated(text)
    assert new == text
    assert sorted((finding.line, finding.rule, finding.changed) for finding in found) == [
        (line, "LF407", False) for line in lines
    ]
    assert all("WORK_DIR and DRIVE_DIR" in finding.action for finding in found)


@pytest.mark.parametrize(
    "before, after",
    [
        ('"""/content/a\n{x}"""', '"""{WORK_DIR}/a\n{x}""".replace("{WORK_DIR}", WORK_DIR)'),
        (
            "r'''/content/a\n{number}\\d /content/drive/MyDrive/b'''",
            "r'''{WORK_DIR}/a\n{number}\\d {DRIVE_DIR}/b'''"
            '.replace("{WORK_DIR}", WORK_DIR).replace("{DRIVE_DIR}", DRIVE_DIR)',
        ),
    ],
)
def test_braces_of_a_long_text_are_not_doubled(before, after):
    assert migrated(f"x = {before}")[0] == f"x = {after}"
    assert _evaluated(after) == _evaluated(before).replace("/content/drive/MyDrive", DRIVE).replace(ROOT, WORK)


@pytest.mark.parametrize(
    "before, after",
    [
        ("# path = '/content/x'", "# path = f'{WORK_DIR}/x'"),
        ("#   f(a, '/content/x',", "#   f(a, f'{WORK_DIR}/x',"),
        ('#     "dir":    "/content/x",', '#     "dir":    f"{WORK_DIR}/x",'),
        ('# {"a": "/content/x", "b": 1}', '# {"a": f"{WORK_DIR}/x", "b": 1}'),
        ('#  "/content/x",', '#  f"{WORK_DIR}/x",'),
        ("# !cp /content/x .", '# !cp "$WORK_DIR"/x .'),
        ("#%cd /content", "#%cd $WORK_DIR"),
        ("#unzip /content/a.zip", '#unzip "$WORK_DIR"/a.zip'),
        ("# cp -r /content/x ./b", '# cp -r "$WORK_DIR"/x ./b'),
        ("# # !cp /content/x .", '# # !cp "$WORK_DIR"/x .'),
        ('# !a \\\n#   --b \\\n#   --to "/content/x"', '# !a \\\n#   --b \\\n#   --to "$WORK_DIR/x"'),
        ("# https://a.b/content/x", "# https://a.b/content/x"),
        ('#   P = f"/content/{name}"', '#   P = f"{WORK_DIR}/{name}"'),
        ("# P = r'/content/x'", "# P = rf'{WORK_DIR}/x'"),
        ("# the path of a model (e.g., '/content/x.pt')", "# the path of a model (e.g., '/content/x.pt')"),
    ],
)
def test_paths_in_code_that_is_commented_out_are_rewritten(before, after):
    assert migrated(before)[0] == after


def test_a_cell_that_cannot_be_parsed_is_read_as_text():
    new, found = migrated("print 'in /content'\ncd /content/x\nx = /content/y\nz = '/content/open")
    assert new == "print f'in {WORK_DIR}'\ncd /content/x\nx = /content/y\nz = '/content/open"
    assert all(finding.changed for finding in found)


def test_a_file_that_the_shell_reads_is_no_tag():
    assert migrated("!wc -l </content/a")[0] == '!wc -l <"$WORK_DIR"/a'
    assert migrated("os.system('wc </content/a')")[0] == "os.system(f'wc <\"{WORK_DIR}\"/a')"


def test_tags_in_text_cells_stay():
    assert migrated("Put it into `<content>…</content>`.", kind="markdown")[1] == []


def test_text_cells_stay_and_each_line_is_reported():
    text = "See `/content/x`, [a](b)\n!ls /content/x\nf('/content/z') in /content/drive, https://a.b/content/y\nText"
    new, found = migrated(text, kind="markdown")
    assert new == text
    assert [(finding.rule, finding.line, finding.changed) for finding in found] == [
        ("LF409", n, False) for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# Image.open('/content/a.jpg')\nx = 1",
        "# drive.mount('/content/drive')\nx = '/content/a'",
        "# drive.mount('/content/drive', force_remount=True)\nx = '/content/drive/MyDrive/a'",
    ],
)
def test_commented_code_names_no_variable_that_nothing_defines(text):
    new, found = rewrite(CellSource(text), cell_type="code", rules=paths.RULES, facts=collect_facts([CellSource(text)]))
    assert new.text.split("\n")[0] == text.split("\n")[0]
    assert ("LF407", False) in {(finding.rule, finding.changed) for finding in found}


def test_other_languages_are_unchanged():
    text = "x <- read.csv('/content/x')\n!ls /content"
    assert migrated(text, language="r") == (text, [])
    assert migrated(text, language="r", kind="markdown") == (text, [])


def test_names_are_those_of_the_facts():
    facts = NotebookFacts(work="WORK_DIR_2", drive="DRIVE_DIR_2")
    source = CellSource("x = '/content/x'\n!ls /content/drive/MyDrive\n%cd /content")
    new, _ = rewrite(source, cell_type="code", rules=paths.RULES, facts=facts)
    assert new.text == "x = f'{WORK_DIR_2}/x'\n!ls \"$DRIVE_DIR_2\"\n%cd $WORK_DIR_2"


def test_only_what_names_a_folder_changes():
    before = "if a :\n\tx = [ '/content/x' ,\n\t\t'{y}' ]  # ö\r\n"
    assert migrated(before)[0] == before.replace("'/content/x'", "f'{WORK_DIR}/x'")


def test_the_mount_point_decides():
    assert migrated("x = '/gd/My Drive/x', '/gd/drive'", mounts=("/gd/drive",))[0] == "x = '/gd/My Drive/x', DRIVE_DIR"
    assert migrated("x = '/content/drive/y'", mounts=("/content/gdrive",))[0] == "x = f'{WORK_DIR}/drive/y'"
    assert migrated("x = 'gdrive/' + y", mounts=("/content/gdrive",))[0] == "x = f'{DRIVE_DIR}/' + y"
    assert migrated("ls('./gdrive')", mounts=("/content/gdrive",))[0] == "ls(DRIVE_DIR)"
    assert migrated("ls('./gdrive', './drive.zip')", mounts=("/content/drive",))[1] == []
    assert migrated("x.startswith('./drive/')", mounts=("/content/drive",))[0] == "x.startswith(f'{DRIVE_DIR}/')"
    assert migrated("x = '/content/MyDrive/y', '/content'", mounts=("/content",))[0] == (
        "x = f'{DRIVE_DIR}/y', WORK_DIR"
    )


@pytest.mark.parametrize(
    "before, after",
    [
        ("%cd gdrive", "%cd $DRIVE_DIR"),
        ("%cd gdrive/\n%cd My Drive", "%cd $DRIVE_DIR/\n%cd My Drive"),
        ("!cd gdrive && ls", '!cd "$DRIVE_DIR" && ls'),
        ("!ls; (cd gdrive)", '!ls; (cd "$DRIVE_DIR")'),
        ("%cd gdrive-old", "%cd gdrive-old"),
        ("%cd src/gdrive", "%cd src/gdrive"),
        ("%cd gd", "%cd gd"),
        ("x = 'enter the cd gdrive', 'cd\\ngdrive'", "x = 'enter the cd gdrive', 'cd\\ngdrive'"),
    ],
)
def test_the_mount_point_is_entered_by_its_name(before, after):
    assert migrated(before, mounts=("/content/gdrive",))[0] == after
    assert migrated(before)[0] == before  # the notebook mounts nothing
    before, after = (text.replace("gdrive", "drive") for text in (before, after))
    assert migrated(before, mounts=("/content/drive",))[0] == after


def test_the_mount_point_is_only_equivalent():
    (finding,) = migrated("x = '/content/drive/' + y")[1]
    assert finding.keeps is Keeps.EQUIVALENT
    (finding,) = migrated("x = '/content/drive/MyDrive/' + y")[1]
    assert finding.keeps is Keeps.EXACT


@pytest.mark.parametrize(
    "text, needed",
    [
        ("x = 'MyDrive'", True),
        ("x = os.path.join(root, 'My Drive', 'y')", True),
        ("x = root + '/MyDrive/y'", True),
        ("x = f'{WORK_DIR}/content/drive/MyDrive/y'", False),
        ("!ls $base/My\\ Drive/x", True),
        ("%%bash\nls $base/MyDrive", True),
        ("%cd MyDrive/x", True),
        ("a()\n!cp x.csv My\\ Drive", True),
        ("# %cd MyDrive/x", False),
        ("%cd MyDrives/x", False),
        ("x = f'{DRIVE_DIR}/x'  # in 'MyDrive'", False),
        ("print('no drive, using MyDrive instead')", False),
        ("MyDriveError", False),
    ],
)
def test_links_are_needed_where_the_name_is_appended_at_run_time(text, needed):
    assert needs_drive_links(CellSource(text), NotebookFacts()) is needed
    assert not needs_drive_links(CellSource(text), NotebookFacts(folders=frozenset()))


PIECES = ["'/content/x'", "f'/content/{a}'", "'{}/content'", "b'/content'", "'/content/drive/MyDrive'", "!ls /content"]
PIECES += [
    "%cd '/content'",
    "# /content",
    "\n",
    " + ",
    "x = ",
    "(",
    ")",
    '"""',
    "'",
    "\\",
    "{",
    "}",
    "$",
    "%%bash\n",
    "é",
]
PIECES += ["%%writefile a.py\n", "%%writefile a.txt\n", "\\/content", " ", "!cp '/content/a", "<<'E'\n", "if a:\n  "]


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_rewriting_any_cell_keeps_python_valid(text):
    def tree(source):
        return source.tree

    new, _ = migrated(text, mounts=("/content/drive",))
    if tree(CellSource(text)) is not None and CellSource(new).is_python:
        assert isinstance(tree(CellSource(new)), ast.Module)
