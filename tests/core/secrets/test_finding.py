import base64
import random
import time

import pytest

from core.secrets.finding import MASK, find_secrets, is_placeholder, masked

# Of the right form and meaningless; written in parts so that no scanner takes this file for a leak.
LETTERS = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA"
HEX = "0a9f3c5e7b1d2468ace013579bdf2648"
FORMS = {
    "Hugging Face token": "hf_" + "QzRkWmXvTbLpNcYdGhJsAfEuQzRkWmXvTb",
    "OpenAI key": "sk-" + LETTERS + "T3Blbk" + LETTERS[:10],
    "OpenAI project key": "sk-proj-" + LETTERS + "_" + LETTERS,
    "Anthropic key": "sk-ant-" + "api03-" + LETTERS + LETTERS,
    "OpenRouter key": "sk-or-" + "v1-" + HEX + HEX,
    "Google API key": "AI" + "zaSy" + LETTERS + "b",
    "Google authorisation code": "4/" + "0AX4Xf" + LETTERS + "-" + LETTERS[:20],
    "Google access token": "ya29." + "a0Af_" + LETTERS,
    "GitHub token": "gh" + "p_" + LETTERS + LETTERS[:4],
    "GitHub fine-grained token": "github_pat_" + "11" + LETTERS + "_" + LETTERS,
    "AWS key id": "AK" + "IA" + "Q7Z2K9M4X1B8V5N3",
    "Slack token": "xo" + "xb-2413-5867-" + LETTERS,
    "Groq key": "gs" + "k_" + LETTERS + LETTERS[:20],
    "JSON web token": "ey" + "J" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9." + LETTERS,
    "Telegram bot token": "91827364" + ":AA" + LETTERS + "x",
}


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("text", ["{}", "x = '{}'\n", "Your token: {}\nbye", "https://x.org/?t={}&a=1", "!login {} -y"])
def test_a_key_with_a_known_format_is_masked_anywhere(value, text):
    found = find_secrets(text.format(value))
    assert [text.format(value)[secret.start : secret.end] for secret in found] == [value]
    assert masked(text.format(value)) == text.format(MASK)


@pytest.mark.parametrize("joined", ["&", "&amp;"])
def test_the_token_of_a_public_file_is_a_part_of_its_address(joined):
    token = "7c1d2e9a-4b3f-4e6d-9a8b-1f2e3d4c5b6a"
    assert find_secrets(f"![plot](https://x.org/v0/b/c/o/plot.png?alt=media{joined}token={token})") == []
    assert find_secrets(f"https://x.org/plot.png?a=media{joined}token={token}")


@pytest.mark.parametrize("before", ["?", "&", "&amp;"])
def test_the_token_of_a_public_article_is_a_part_of_its_address(before):
    token = "Xk29fQ7dPz3mWb8RtY1c"
    assert find_secrets(f"[1] A. B., https://x.org/a/pii/S1{before}casa_token={token}:vR4n-k2Lq9TzX7") == []
    assert find_secrets(f"https://x.org/a/pii/S1{before}access_token={token}")
    assert find_secrets(f"casa_token={token}")


@pytest.mark.parametrize(
    "text",
    [
        "api_key = '{}'",
        'WANDB_API_KEY="{}"',
        "os.environ['KAGGLE_KEY'] = \"{}\"",
        "%env NGROK_TOKEN={}",
        "%env COMET_API_KEY {}",
        'client = Client(api_key="{}", project="p")',
        "kwargs['token'] = '{}'",
        "os.environ.setdefault('MY_SECRET', '{}')",
        '{{"username": "someone", "key": "{}"}}',
        'echo \'{{\\"username\\":\\"someone\\",\\"key\\":\\"{}\\"}}\' > kaggle.json',
        "headers = {{'Authorization': 'Bearer {}'}}",
        "!ngrok authtoken {}",
        "ngrok.set_auth_token('{}')",
        "https://{}@raw.host.org/a.py",
        "https://data.host.org/a.csv?access_token={}",
    ],
)
def test_a_random_value_is_masked_if_its_name_or_command_is_secret(text):
    (found,) = find_secrets(text.format(HEX))
    assert HEX in text.format(HEX)[found.start : found.end]
    assert HEX not in masked(text.format(HEX))


@pytest.mark.parametrize("line_end", ["\n", "\\n", "\r\n", '",\n    "'])
def test_a_private_key_is_masked_between_its_first_and_last_line(line_end):
    block = line_end.join(
        ["-----BEGIN RSA PRIVATE KEY-----", LETTERS * 2, LETTERS[::-1] * 2, "-----END RSA PRIVATE KEY-----"]
    )
    assert masked(f'"key": "{block}"') == f'"key": "-----BEGIN RSA PRIVATE KEY-----{MASK}-----END RSA PRIVATE KEY-----"'
    assert masked(block[:120]) == f"-----BEGIN RSA PRIVATE KEY-----{MASK}"


def test_weights_and_biases_keys_are_forty_hex_digits_after_a_login():
    key = HEX + HEX[:8]
    assert masked(f"!wandb login --relogin {key}") == f"!wandb login --relogin {MASK}"
    assert masked(f'wandb.login(\n    key="{key}",\n)') == f'wandb.login(\n    key="{MASK}",\n)'


@pytest.mark.parametrize(
    "text, password",
    [
        ("password = 'hunter2!'", "hunter2!"),
        ('"PASSWORD": "s3cr4t-w0rd"', "s3cr4t-w0rd"),
        ("mysql://root:p4ss-w0rt@db.host.org/x", "p4ss-w0rt"),
        ("!git clone https://jane:Tr0ub4dor@git.host.org/r.git", "Tr0ub4dor"),
        ("!curl -u jane:Tr0ub4dor https://host.org", "Tr0ub4dor"),
        ("root password: xK9#mQ2w\n", "xK9#mQ2w"),
        ("login('hunter2x')", "hunter2x"),
        ('wandb.login(key="hunter2x")', "hunter2x"),
        ("smtp.login('reader', 'hunter2x')", "hunter2x"),
        ("!sshpass -p hunter2x ssh plant", "hunter2x"),
        ("{'pin': '4711'}", "4711"),
        ('psk="plant net 1"', "plant net 1"),
    ],
)
def test_passwords_are_found(text, password):
    assert masked(text) == text.replace(password, MASK)


@pytest.mark.parametrize(
    "text",
    [
        "token = 'YOUR_TOKEN_HERE'",
        "HF_TOKEN = 'hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'",
        "openai.api_key = 'sk-...'",
        "api_key = os.environ['API_KEY']",
        "api_key=userdata.get('OPENAI_API_KEY_2024')",
        "password = getpass('Password: ')",
        "login('reader')",
        "login(user_name1, password_1)",
        "login('https://host.org/x1')",
        "pin = 4; pin = '4'; pin = 'GPIO17'; spin = '4711'; Pin('4711')",
        "psk = 'QPSK'",
        "password=db_password1, host='x'",
        "connect(password=password)",
        "{'password': 'string', 'user': 'text'}",
        "https://user:password@host.org",
        "https://{user}:{token}@github.com/x/y.git",
        "https://$USER:$TOKEN@github.com/x/y.git",
        "pad_token = '[PAD]'; eos_token='<|endoftext|>'",
        "tokenizer = 'google/bert_uncased_L-12_H-768_A-12'",
        f"revision = '{HEX}{HEX[:8]}'",
        f"wget https://host.org/weights-{HEX}.pth",
        f"sha256: {HEX}{HEX}",
        f"{{'file': 'train.csv', 'key': '{HEX}'}}",
        f"md5 = '{HEX}'  # of the data set",
        "HEAD is now at 0a9f3c5 Merge pull request",
        "docker://python:v3.11@sha256:" + HEX,
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ",
        "-----BEGIN PRIVATE KEY-----\\n<paste yours here>\\n-----END PRIVATE KEY-----",
        "AKIAIOSFODNN7EXAMPLE",
        "bearer of bad news",
        "risk-adjusted-performance-of-the-portfolio-2020",
    ],
)
def test_placeholders_expressions_and_hashes_are_not_secrets(text):
    assert find_secrets(text) == []


@pytest.mark.slow
def test_base64_of_pictures_is_not_searched():
    for seed in range(20):
        picture = base64.b64encode(random.Random(seed).randbytes(200_000)).decode()
        assert find_secrets(f'<img src="data:image/png;base64,{picture}">') == []
        assert find_secrets("\n".join(picture[at : at + 76] for at in range(0, len(picture), 76))) == []


def test_secrets_next_to_a_picture_in_html_are_found():
    picture = base64.b64encode(random.Random(0).randbytes(3_000)).decode()
    token = FORMS["Hugging Face token"]
    image = f"<img src='data:image/png;base64,{picture}'>"
    text = f"{token} {image} {token} {image}\n{token}"
    assert masked(text) == text.replace(token, MASK)
    assert [text[secret.start : secret.end] for secret in find_secrets(text)] == [token] * 3


def test_masking_twice_changes_nothing_and_text_without_secrets_is_the_same_object():
    text = " ".join(FORMS.values()) + f" password='hunter2!' api_key={HEX} https://a:b4c-d5e@host"
    once = masked(text)
    assert masked(once) is once
    assert not any(value in once for value in [*FORMS.values(), HEX, "hunter2!", "b4c-d5e"])


def test_colour_codes_of_a_traceback_do_not_hide_secrets():
    token = FORMS["GitHub token"]
    text = f"\x1b[0;32mapi_key\x1b[0m \x1b[34m=\x1b[0m \x1b[38;5;124m'{HEX}'\x1b[39m \x1b[31m{token}\x1b[0m"
    assert masked(text) == text.replace(HEX, MASK).replace(token, MASK)


def test_overlapping_matches_are_merged():
    text = f"token={FORMS['JSON web token']}"
    assert masked(text) == f"token={MASK}"


def test_a_kind_names_the_issuer_and_never_the_value():
    for name, value in FORMS.items():
        (secret,) = find_secrets(f"x = '{value}'")
        assert value not in secret.kind
        assert secret.kind.split()[0] == name.split()[0]


@pytest.mark.parametrize(
    "value",
    ["", "  ", "xxx", "XXXX-XXXX", "...", "sk-...", "hf_xxx", "<token>", "{TOKEN}", "$HF_TOKEN", "${KEY}", "YOUR_KEY",
     "your-api-key", "Your API key here", "my_secret_key", "enter your token", "PASTE_HERE", "changeme", "None", "null",
     "***", "abc123", "abcd1234", "dummy", "password", "token", "sk-xxxxxxxxxxxxxxxx", "test", "add-your-key", MASK],
)  # fmt: skip
def test_a_placeholder_is_reported_from_a_value(value):
    assert is_placeholder(value)


@pytest.mark.parametrize("value", [*FORMS.values(), HEX, "hunter2!", "Tr0ub4dor&3"])
def test_a_value_is_not_a_placeholder(value):
    assert not is_placeholder(value)


def test_ten_megabytes_are_searched_within_seconds():
    text = "epoch 1 loss 0.25 token per second 12 — https://host.org/path key frames\n" * 140_000
    started = time.process_time()
    assert find_secrets(text) == []
    assert time.process_time() - started < 10
