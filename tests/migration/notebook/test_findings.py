from migration.notebook.findings import Finding, Keeps, Notes, listed

SECRET = "hf_" + "QzRkWmXvTbLpNcYdGhJsAfEuQzRkWmXvTb"


def test_the_same_note_on_several_cells_is_one_finding_that_names_them():
    notes = Notes()
    notes.add("LF111", "one", 4)
    for cell in (*range(12), 0):
        notes.add("LF106", "many", cell)
    notes.add("LF103", "all", changed=False)
    assert notes.findings() == [
        Finding("LF103", Keeps.EXACT, None, None, "all", changed=False),
        Finding("LF106", Keeps.EXACT, None, None, "many (cells 0, 1, 2, 3, 4, 5, 6, 7 and 4 more)", changed=True),
        Finding("LF111", Keeps.EXACT, 4, 1, "one", changed=True),
    ]


def test_manual_steps_are_reported_for_each_cell():
    notes = Notes()
    for cell in (3, 1):
        notes.add("LF106", "both", cell)
        notes.add("LF123", "act", cell, keeps=Keeps.NEEDS_HUMAN, action="do it")
    both, *others = notes.findings()
    assert both.message == "both (cells 3 and 1)"
    assert [(found.rule, found.cell, found.line, found.action) for found in others] == [
        ("LF123", 3, 1, "do it"), ("LF123", 1, 1, "do it")
    ]  # fmt: skip


def test_a_note_never_contains_a_secret():
    notes = Notes()
    notes.add("LF104", f"the kernel `{SECRET}`")
    assert notes.findings()[0].message == "the kernel `‹secret›`"


def test_names_are_listed_once_and_in_order():
    assert listed(["b", "a", "b"]) == "`a`, `b`"
