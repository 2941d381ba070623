"""The machine; it stays for the rest of the test."""


def unassign():
    pass
