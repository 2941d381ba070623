"""Written text contains no secrets, and code stays valid."""

from __future__ import annotations

import ast
import base64
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.secrets import redaction
from core.secrets.literals import secret_values
from core.secrets.redaction import (
    HIDDEN,
    RedactingFormatter,
    hide_values,
    printable,
    redacted,
    redacted_code,
    redacted_text,
)

VALUE = "hunter2+Xk29"
LINES = {
    "basic authorization": "Authorization: Basic " + base64.b64encode(b"reader:hunterpw").decode(),
    "basic authorization in a command": "curl -H 'Authorization: Basic " + base64.b64encode(b"a:b").decode() + "'",
    "connection string": f"Server=plant;User=reader;Password={VALUE};Timeout=5",
    "storage key": "DefaultEndpointsProtocol=https;AccountName=plant;AccountKey=Zm9vYmFyYmF6cXV4==;Endpoint=x",
    "database": f"mongodb+srv://reader:{VALUE}@plant.example/x",
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.aB3dE6gH9jK2mN5pQ8",
    "Google": "AIza" + "SyaB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zAb",
    "several": f"api_keys=['{VALUE}', 'second {VALUE}']",
    "camel": f"apiKey: '{VALUE}'",
    "two words": f"{{'passphrase': 'correct horse {VALUE}'}}",
    "PEM": "-----BEGIN PRIVATE KEY-----\n" + "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2] * 2),
}


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_a_secret_of_each_kind_is_hidden(text):
    for hidden in (redacted_text(text), redacted_text(f"x = {text!r}"), redacted_code(f"x = {text!r}")):
        assert HIDDEN in hidden
        for secret in (VALUE, "eyJzd", "Zm9v", "AIza", "cmVhZGVyOmh1bnRlcnB3", "YTpi", "MIIEvQ"):
            assert secret not in hidden


@pytest.mark.parametrize("code", ["password: str = {!r}", "token: str | None={!r}", "api_key: Optional[str] = {!r}"])
def test_a_secret_with_an_annotation_is_hidden(code):
    assert redacted_code(code.format("hunter22")) == redacted_text(code.format("hunter22")) == code.format(HIDDEN)


GIVEN = [
    "password = '''{}'''", "token = ({!r})", "token = ('a'\n    {!r})", "token = '' + {!r}",
    "user, token = 'me', {!r}", "token = given or {!r}", "token = {!r} if test else None", "token = [{!r}][0]",
    "token = {!r}.strip()", "x = (token := {!r})", "def login(user, token={!r}): pass",
    "login(lambda *, token={!r}: token)", "token = b{!r}", "settings['db_pass'] = {!r}", "mqtt_pw = {!r}",
    "os.environ.get('HF_TOKEN', {!r})", "os.environ |= {{'API_KEY': {!r}}}", "assert password == {!r}",
    "tokens['a'] = {!r}", "requests.get(url, auth=('me', {!r}))", "client.username_pw_set('me', {!r})",
    "x = 'ä'; token = {!r}", "!ls\n%time\ntoken = {!r}", "files = !ls --all \\\n  here\ntoken = {!r}",
    "files = !curl --password {} here", "%%bash\nexport TOKEN={!r}", "url = 'https://host/x?sv=1&sig={}'",
]  # fmt: skip


@pytest.mark.parametrize("code", GIVEN)
def test_a_value_that_is_given_to_the_name_of_a_secret_is_hidden(code):
    value = "hunter2xXk29Qw81zPl3"
    assert redacted_code(code.format(value)).replace(HIDDEN, value) == code.format(value).replace("'a'\n    ", "")
    assert value not in redacted_code(code.format(value))


def test_the_values_of_secrets_in_code_are_found():
    code = "token = 'hunter2'; password = f'x9{y}'\n!ls\nsecret = 'word'; login(api_key='k9-k9'); sort(key='time_1')"
    assert secret_values(code) == {"hunter2", "k9-k9"}
    assert secret_values("token = ") == set()


SHORT = [
    "pin = {!r}", "pin: str = {!r}", "unlock(pin={!r})", "{{'doorPin': {!r}}}", "def unlock(pin_code={!r}): pass",
    "settings['PIN'] = {!r}", "if pin == {!r}: pass", "otp = {!r}", "url = 'https://host/x?pin={}'", "%env DOOR_PIN={}",
    "!unlock --pin {}",
]  # fmt: skip


@pytest.mark.parametrize("code", SHORT)
def test_a_pin_is_hidden(code):
    assert redacted_code(code.format("4711")) == code.format("4711").replace("4711", HIDDEN)
    assert redacted({"pin": "4711", "wifi-psk": "plant net", "x": "4711"}) == {
        "pin": HIDDEN,
        "wifi-psk": HIDDEN,
        "x": "4711",
    }


CODE = [
    "pin = 4",
    "led = Pin(4711, Pin.OUT); pin = Pin('4711')",
    "pin = 'GPIO17'; pins = ['4711', '4712']",
    "pin = '4'",
    "shopping = 'a1b2c3'; spin = 3; spin = '4711'; upsk = 'abcdefgh1'",
    "psk = 'QPSK'; psk = 'dqpsk-mode-2'",
    "login = 'reader1'",
    "login()",
    "login('https://host/x1')",
    "login('reader')",
    "login(os.environ['X1'])",
    "conv_pw = 'relu6'",
    "model.set_pad_token('[PAD9]')",
    "token = os.environ['X']",
    "print('token:', token)",
    "tokens = ['a', 'b']",
    "columns = ['token', 'label']",
    "values.sort(key='customer_id2')",
    "if 'token' in 'token2': pass",
    "password = getpass('token: ')",
    "token = userdata.get('X')",
    "num_tokens=128",
    "model(num_tokens=128, max_tokens=5, pad_token='[PAD]')",
    "password = getpass()",
    "api_key: str = settings.api_key",
    "secret = None; token: Optional[str] = None",
    "if token == other_token: pass",
    "keys = [token for token in tokens]",
    "credentials = service.Credentials(token=token, secret=load(secret))",
    "f'https://{user}:{token}@host/x'",
]


@pytest.mark.parametrize("code", CODE)
def test_code_without_a_secret_stays(code):
    assert redacted_code(code) == code


@pytest.mark.parametrize(
    "code",
    [
        "token = os.environ['X']",
        "num_tokens=128",
        "tokens: 40",
        "mask_token = '[MASK]'",
        "pin=4",
        "pin: 1013.2",
        "Basic statistics of the pump",
        "the basic Configuration",
    ],
)
def test_a_line_of_a_log_without_a_secret_stays(code):
    assert redacted_text(code) == code


_NAMES = st.sampled_from(
    ["token", "pin", "psk", "login", "api_key", "num_tokens", "password", "x", "secrets", "apiKey", "authorization"]
)
_VALUES = st.sampled_from([
    "os.environ['X']", "'hunter2'", '"a b"', "128", "f(x)", "None", '["y"]', "'''p'''", r"r'\d'", "{'token': 'q'}",
    "f'{x}'", "x.y", r"'a\'b'", "-1", "'4711'", "login('x9x9x9')", "'Bearer abcdefgh1'", "'k=v;Password=p1;'",
])  # fmt: skip
_LINES = st.builds("{} {} {}".format, _NAMES, st.sampled_from(["=", "==", "+=", ": str ="]), _VALUES)
_COMMENTS = st.sampled_from(["", "  # token=x1", "  # 'Basic YTpi'"])


@given(lines=st.lists(_LINES, min_size=1, max_size=4), comment=_COMMENTS)
def test_redacted_code_can_be_parsed(lines, comment):
    code = "\n".join(line + comment for line in lines)
    try:
        ast.parse(code)
    except SyntaxError:
        return
    ast.parse(redacted_code(code))
    assert redacted_code(redacted_code(code)) == redacted_code(code)


def test_a_known_secret_is_hidden_everywhere(monkeypatch):
    assert redacted_text("got plain-hunter") == "got plain-hunter"
    monkeypatch.setattr("core.secrets.redaction._given", set())
    hide_values(["plain-hunter", "x"])
    assert redacted_text("got plain-hunter, x") == f"got {HIDDEN}, x"
    monkeypatch.setenv("PLANT_API_KEY", "simple words")
    assert redacted_text("the answer: simple words") == f"the answer: {HIDDEN}"
    assert redacted_code("print('simple words')") == f"print('{HIDDEN}')"


def test_lists_under_plural_names_are_hidden_and_counts_stay():
    given = {
        "api_keys": ["hunter2", "hunter3"],
        "tokens": 5,
        "max_tokens": 9,
        "passwords": ("hunter4",),
        "special_tokens": ["<a>"],
    }
    assert redacted(given) == given | {"api_keys": [HIDDEN, HIDDEN], "passwords": (HIDDEN,)}


@pytest.mark.parametrize("letters", ["\n", "\x1b[2J", "\x07", "\r", "\u202e", "\u2066", "\x9b", "\u2028", "\x00"])
def test_control_characters_in_log_lines_are_escaped(letters):
    values = (f"channel a{letters}b", np.int64(3), 0.25, None)
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s: %d of %.1f, %s", values, None)
    line = RedactingFormatter("%(severity)s%(message)s").format(record)
    assert line.isprintable()
    assert line == f"WARNING: channel a{printable(letters)}b: 3 of 0.2, None"
    assert record.args == values, "other handlers get the record as it was"


def test_a_long_text_is_searched_once_and_again_for_a_new_value(monkeypatch):
    """A notebook is written after each cell, with the pictures of all earlier ones."""
    searched = []
    monkeypatch.setattr(redaction, "masked", lambda text, hidden: searched.append(text) or text)
    picture = "iVBORw0KGgo" * 2000 + "pencil case"
    assert [redaction.redacted_text(picture) for _ in range(3)] == [picture] * 3
    assert len(searched) == 1
    monkeypatch.setattr(redaction, "_given", {"pencil case"})
    assert redaction.redacted_text(picture).endswith(redaction.HIDDEN)
