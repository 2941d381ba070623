"""Finds secrets in text by their form or by the name of their variable; never prints them.

A key with the prefix of its issuer (`hf_`, `sk-`, `AKIA`) is found anywhere. A random text is a secret only after the
name of a secret or a command (`api_key = …`, `wandb login …`), because hashes of commits and files look the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from core.secrets.names import is_secret_name, suggests_secret, with_underscores

MASK = "‹secret›"


@dataclass(frozen=True)
class Secret:
    """A secret at `start:end` of a text; `kind` names its issuer or its use, such as "Hugging Face token"."""

    kind: str
    start: int
    end: int


# A text of a password, not an address.
_QUOTED = r"[rb]?\\?[\"']((?!\w+://)[^\s\"'\\‹›{}$]{6,200})\\?[\"']"
_PIN_NAMES = ("pin(?<![A-Za-z]...)", "PIN(?<![A-Za-z]...)", "Pin(?<![A-Z]...)")
_PIN_VALUE = r"[\\\"'\]]{0,3}\s{0,9}(?:={1,2}|[:,])\s{0,9}\\?[\"'](\d[\d -]{2,15}\d)\\?[\"']"
_PIN_SETTINGS = (
    r"pin[= ](?:(?<=--pin.)|(?<=[?&]pin=))",
    r"export\s+\w*PIN[= ]",
    r"%(?:set_)?env\s+\w*PIN[= ]",
    r"ENV\s+\w*PIN[= ]",
)
# One row per form: what it is, a lower-case text that it always contains (searched first: the pattern runs only where
# this text occurs, and fewer different texts are faster), and the pattern. The secret is group 1, or the complete match
# if there is no group. A pattern starts with its literal text if possible, which is fast to find, and uses a lookbehind
# after it.
_FORMS: tuple[tuple[str, str, str], ...] = (
    ("Hugging Face token", "hf_", r"hf_(?<!\w...)[A-Za-z0-9]{30,}\b"),
    ("Hugging Face token", "api", r"api_org_(?<!\w.{8})[A-Za-z0-9]{30,}\b"),
    ("Anthropic key", "sk-", r"sk-ant-(?<![\w-].{7})[\w-]{24,}"),
    ("OpenAI key", "sk-", r"sk-(?<![\w-]...)(?:proj|svcacct|admin|None)-[\w-]{20,}"),
    ("OpenRouter key", "sk-", r"sk-or-(?<![\w-].{6})v\d-[0-9a-f]{40,}"),
    ("OpenAI key", "sk-", r"sk-(?<![\w-]...)[A-Za-z0-9]{32,}(?![\w-])"),
    ("Google API key", "aiza", r"AIza(?<![\w+/-].{4})[\w-]{35}(?![\w+/-])"),
    ("Google access token", "ya29.", r"ya29\.(?<!\w.{5})[\w.-]{30,}"),
    ("Google client secret", "gocspx-", r"GOCSPX-[\w-]{20,}"),
    ("Google refresh token", "1//0", r"1//0(?<![\w+/].{4})[\w-]{30,}(?![\w+/])"),
    ("Google authorisation code", "4/", r"4/(?<![\w+/.%-]..)[01A][\w-]{30,120}(?![\w+/=-])"),
    ("Google authorisation code", "4%2f", r"4%2F(?<![\w+/.%-].{4})[01A][\w-]{30,120}(?![\w+/-])"),
    ("GitHub token", "gh", r"gh(?<!\w..)[opsur]_[A-Za-z0-9]{36,}\b"),
    ("GitHub token", "pat", r"github_pat_\w{30,}"),
    ("GitLab token", "pat", r"glpat-[\w-]{20,}"),
    ("AWS key id", "akia", r"AKIA(?<![\w+/].{4})[0-9A-Z]{16}(?![\w+/])"),
    ("AWS key id", "asia", r"ASIA(?<![\w+/].{4})[0-9A-Z]{16}(?![\w+/])"),
    ("Slack token", "xox", r"xox[abeoprs]-(?<!\w.{5})[\w-]{10,}"),
    ("Slack webhook", "hooks", r"hooks\.slack\.com/services/(T\w+/B\w+/\w{16,})"),
    ("Discord webhook", "hooks", r"/api/webhooks/(\d{15,}/[\w-]{50,})"),
    ("Telegram bot token", ":aa", r"(?<![\w:])\d{8,10}:AA[\w-]{33}(?![\w-])"),
    ("Groq key", "sk_", r"gsk_(?<!\w.{4})[A-Za-z0-9]{40,}\b"),
    ("Replicate token", "r8_", r"r8_(?<!\w...)[A-Za-z0-9]{36,}\b"),
    ("Pinecone key", "sk_", r"pcsk_\w{40,}"),
    ("LangSmith key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}\w*"),
    ("Tavily key", "tvly-", r"tvly-(?<!\w.{5})[\w-]{28,}"),
    ("NVIDIA key", "api", r"nvapi-[\w-]{50,}"),
    ("Databricks token", "api", r"dapi(?<!\w....)[0-9a-f]{32}\b"),
    ("Kaggle token", "kgat_", r"KGAT_\w{30,}"),
    ("Weights & Biases key", "wandb", r"wandb_v1_\w{40,}"),
    ("JSON web token", "eyj", r"eyJ(?<![\w+/]...)[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    (
        "private key",
        "key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----((?:[\w+/=:,. \r\n-]|\\[nr]|[\"'],?){64,20000}?)"
        r"(?:-----END|\Z)",
    ),
    (
        "password in a URL",
        "://",
        r"://(?<=\w...)[^\s:/@\"'<>?#\\]{0,80}:([^\s/@\"'<>{}$\\‹›]{3,200})@(?=[\w.\[-])(?!sha256:)",
    ),
    ("password of a command", " -u ", r" -u [\"']?[\w.@-]+:([^\s\"'{}$\\‹›]{4,80})"),
    ("token in a URL", "://", r"://(?<=\w...)([\w-]{20,})(?::x-oauth-basic)?@(?=[\w.-])"),
    ("signature in a URL", "sig", r"sig=(?<=[?&;]....)([\w%+/-]{20,}={0,2})"),
    (
        "signature in a URL",
        "sig",
        r"-Signature=(?:(?<=[?&;]X-Amz.{11})|(?<=[?&;]X-Goog.{11}))([\w%+/-]{20,}={0,2})",
    ),
    ("Kaggle key", "key", r"username[\\\"'\s:]+[\w.@-]*[\\\"'\s,]+key[\\\"'\s:]+([0-9a-f]{32})(?![0-9a-f])"),
    ("bearer token", "earer ", r"earer (?<=[Bb]earer )([\w.~+/-]{20,}=*)"),
    ("Weights & Biases key", "wandb", r"wandb(?:\.|\s+)login\b[\s\S]{0,60}?(?<![0-9a-f])([0-9a-f]{40})(?![0-9a-f])"),
    ("ngrok token", "token", r"uthtoken[\s=:\"'(]+(\w{20,})"),
    ("ngrok token", "token", r"auth_token\(\s*[\"'](\w{20,})"),
    ("password of a login", "login", rf"\blogin\(\s*(?:(?:key|token)\s*=\s*)?{_QUOTED}\s*,?\s*\)"),
    ("password of a login", "login", rf"\blogin\(\s*[^\s,()][^,()\n]{{0,80}},\s*{_QUOTED}\s*,?\s*\)"),
    ("password of a command", "sshpass", r"sshpass\s+-p\s*[\"']?([^\s\"'{}$\\‹›]{4,80})"),
    *(("PIN", "pin", rf"{name}(?:[_-]?(?:code|CODE|Code))?{_PIN_VALUE}") for name in _PIN_NAMES),
    *(("PIN", "pin", rf"{setting}[\"']?(\d{{4,16}})\b") for setting in _PIN_SETTINGS),
    *(
        (
            "pre-shared key",
            "psk",
            rf"{name}(?<![A-Za-z]...)[\\\"'\]]{{0,3}}\s{{0,9}}(?:={{1,2}}|:)\s{{0,9}}\\?[\"']((?:(?!psk|PSK)[^\"'\n\\‹›{{}}$]){{8,63}})\\?[\"']",
        )
        for name in ("psk", "PSK")
    ),
    ("pre-shared key", "psk", r"psk=(?<![A-Za-z]....)([0-9a-f]{64})\b"),
    ("pre-shared key", "psk", r"--psk[= ]([^\s\"'{}$\\‹›()]{8,64})(?=[\s\"']|\Z)"),
)
# Their forms also match words and hashes, so the value must look random, or like a password.
_LOOSE_KINDS = frozenset({"bearer token", "ngrok token", "token in a URL"})
_PASSWORD_KINDS = frozenset({"password in a URL", "password of a command", "password of a login"})

# Last words of the names of secrets, in their spellings, with the suffixes that may follow in the name (`api_key`,
# `API_KEY`, `apiKey`).
_KEY_NAMES = {
    "token": ("token", "TOKEN", "Token"),
    "secret": ("secret", "SECRET", "Secret"),
    "key": ("key(?:_id|_ID)?", "KEY(?:_id|_ID)?", "Key(?:_id|_ID)?"),
}
_PASSWORD_NAMES = {
    "pass": ("passw(?:or)?d", "Passw(?:or)?d", "PASSW(?:OR)?D", "passphrase"),
    "pwd": ("pwd", "PWD"),
}
# Lower-case texts; a text without any of them contains no secret.
_WORDS = tuple(dict.fromkeys([*(word for _, word, _ in _FORMS), *_KEY_NAMES, *_PASSWORD_NAMES]))
# `name = "…"`, `name: …`, `"NAME": "…"`, `environ["NAME"] = "…"`, `setdefault("NAME", "…")`, `?name=…`, `--name …`.
_KEY_VALUE = r"(?:\\?[\"']?\]?\s{0,40}(?:=|:|,)\s{0,40}|[ \t]+)(?:\\?[\"'])?([A-Za-z0-9][\w+/.~-]{15,199}=*)"
_PASSWORD_VALUE = (
    r"(?:\\?[\"']?\]?\s{0,40}(?:=|:)\s{0,40}|[ \t]+(?<=--.{9}))"
    r"(?:\\?([\"'])((?:(?!\2)[^\s\\‹›{}$]){4,80})\\?\2|([^\s\"'\\‹›{}$,;&()<>\[\]]{6,80})(?=[\s,;&\"'\\]|\Z))"
)

# A picture or sound inside HTML: most of the text of some outputs, and never a secret.
_MEDIA = re.compile(r";base64,[A-Za-z0-9+/=]{1000,}")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Placeholder forms, and words that mark a placeholder.
_PLACEHOLDER = re.compile(
    r"^(?:.{0,3}|(.)\1*|\W*|[<\[{(].*|.*[>}\])]|[$%].*|.*(?:\.\.\.|…|\*\*\*|example|1234567|abcdefg|x{4,}|0{8,}).*"
    r"|[a-z]+[_-]x{3,}|abcd?e?f?\d*|none|null|true|false|str(?:ing)?|text|optional|prompt|default|hidden|test|demo|foo|bar|x-oauth-basic)$",
    re.IGNORECASE | re.DOTALL,
)
_PLACEHOLDER_WORD = re.compile(
    r"(?:^|[^a-z])(?:your?|my|tu|votre|dein|ihr|seu|sua|insert|enter|paste|put|replace|change|fill|here|todo|fixme|"
    r"dummy|fake|sample|placeholder|redacted|removed|secret|password|passwd|token|api|key|user|username|changeme|"
    r"change_?me|xxx+)(?![a-z])",
    re.IGNORECASE,
)

# Before the token of a public file or article: it is a part of the address that everyone gets.
_PUBLIC = tuple(f"{before}token=" for before in ("?alt=media&", "?alt=media&amp;", "?casa_", "&casa_", "&amp;casa_"))

_VARIABLES = {
    "Hugging Face token": "HF_TOKEN",
    "Google API key": "GOOGLE_API_KEY",
    "AWS key id": "AWS_ACCESS_KEY_ID",
    "Weights & Biases key": "WANDB_API_KEY",
    "Kaggle key": "KAGGLE_KEY",
    "ngrok token": "NGROK_AUTHTOKEN",
}


def find_secrets(text: str) -> list[Secret]:
    """Every secret of a text, in order and without overlap; placeholders such as `YOUR_KEY` are not secrets."""
    if "\x1b" in text:
        # Colour codes of a traceback are replaced by blanks: their last letter would be joined to the next word.
        text = _COLOUR.sub(lambda code: " " * len(code[0]), text)
    merged: list[Secret] = []
    for secret in _found(text) if ";base64," not in text else _found_outside_media(text):
        if merged and secret.start < merged[-1].end:
            first = merged[-1]
            merged[-1] = Secret(first.kind, first.start, max(first.end, secret.end))
        else:
            merged.append(secret)
    return merged


def masked(text: str, mask: str = MASK) -> str:
    """The text with every secret replaced by `mask`; the same object where there is none.

    Masking the result changes nothing: no value with a mask in it is a secret.
    """
    while found := find_secrets(text):
        pieces, at = [], 0
        for secret in found:
            pieces += [text[at : secret.start], mask]
            at = secret.end
        text = "".join([*pieces, text[at:]])
    return text


def is_placeholder(value: str) -> bool:
    """Whether the value of a name such as `api_key` is a placeholder: `""`, `YOUR_KEY`, `<token>`, `xxx`, `hf_xxx`,
    `sk-...`, `enter your key here`, `{TOKEN}`."""
    value = value.strip().strip("\"'`")
    if _PLACEHOLDER.match(value) or MASK in value:
        return True
    return _PLACEHOLDER_WORD.search(value) is not None and not is_random(value)


def is_password(value: str) -> bool:
    """Whether a text has letters and at least one digit or sign, and is not a placeholder or a plain word."""
    has_letter = any(character.isalpha() for character in value)
    return has_letter and not value.isalpha() and not is_placeholder(value) and not re.match(r"\w+[.(]\w", value)


def is_random(value: str) -> bool:
    """Whether a text looks random: it has digits, and lower case, upper case and digits alternate often.

    `0a9f3c…` and `Xk29fQ…` are, `bert-base-uncased-2020` and `customer_id_column` are not.
    """
    if len(value) < 16 or _PLACEHOLDER.match(value) or not any(character.isdigit() for character in value):
        return False
    kinds = [1 if c.isdigit() else 2 if c.islower() else 3 if c.isupper() else 0 for c in value]
    changes = sum(a != b and a > 0 and b > 0 for a, b in pairwise(kinds))
    return changes >= 0.22 * len(value) and len(set(value)) >= 8


def variable_for(name: str, kind: str = "") -> str:
    """The environment variable for a secret of the variable `name`, of a kind that `find_secrets` returns.

    An upper-case name is kept; otherwise the usual name for the kind is used.
    """
    if name.isupper() and is_secret_name(name):
        return name
    if kind in _VARIABLES:
        return _VARIABLES[kind]
    issuer = re.fullmatch(r"([\w ]+) key", kind)
    if issuer:
        return _capitals(issuer[1]) + "_API_KEY"
    given = re.fullmatch(r"value of (\w+)", kind)
    name = name or (given[1] if given else "")
    return _capitals(with_underscores(name) if name else kind) or "SECRET"


def _found(text: str) -> list[Secret]:
    """The secrets of a text in order; they may overlap."""
    present = frozenset(filter(text.lower().__contains__, _WORDS))
    if not present:
        return []
    found = [*_with_known_form(text, present), *_given_to_a_name(text, present)]
    return sorted(found, key=lambda secret: secret.start)


def _found_outside_media(text: str) -> Iterator[Secret]:
    at = 0
    for start, end in [*(match.span() for match in _MEDIA.finditer(text)), (len(text), len(text))]:
        yield from (replace(secret, start=secret.start + at, end=secret.end + at) for secret in _found(text[at:start]))
        at = end


def _with_known_form(text: str, present: Set[str]) -> Iterator[Secret]:
    for kind, word, pattern in _FORMS:
        for match in _compiled(pattern).finditer(text) if word in present else ():
            group = 1 if match.re.groups else 0
            if _accepts(kind, match[group]):
                yield Secret(kind, match.start(group), match.end(group))


def _accepts(kind: str, value: str) -> bool:
    if kind in _PASSWORD_KINDS:
        return is_password(value)
    if kind in _LOOSE_KINDS:
        return is_random(value)
    if kind == "private key":
        return len(set(value)) >= 20
    return not _PLACEHOLDER.match(value)


def _given_to_a_name(text: str, present: Set[str]) -> Iterator[Secret]:
    for written in _present(_KEY_NAMES, present):
        for match in _compiled(f"{written}(){_KEY_VALUE}").finditer(text):
            name = _name_up_to(text, match.start(1))
            is_public = text.endswith(_PUBLIC, 0, match.start(2))
            if suggests_secret(name) and is_random(match[2]) and not is_public:
                yield Secret(f"value of {name}", *match.span(2))
    for written in _present(_PASSWORD_NAMES, present):
        for match in _compiled(f"{written}(){_PASSWORD_VALUE}").finditer(text):
            is_quoted = match[3] is not None
            value = match[3] if is_quoted else match[4]
            is_hash = "hash" in _name_up_to(text, match.start(1)).lower()
            if is_password(value) and (is_quoted or _is_no_variable(value)) and not is_hash:
                yield Secret("password", *match.span(3 if is_quoted else 4))


def _present(names: Mapping[str, Sequence[str]], present: Set[str]) -> Iterator[str]:
    return (written for word, ways in names.items() if word in present for written in ways)


def _name_up_to(text: str, end: int) -> str:
    """The name that ends at `end`; only the last 60 characters before it are searched, because the text may be long."""
    found = re.search(r"[\w-]*\Z", text[max(0, end - 60) : end])
    return found[0] if found else ""


def _is_no_variable(value: str) -> bool:
    """Without quotes, `password = x1` names a variable, but a text with signs or with lower case, upper case and digits
    does not."""
    return bool(re.search(r"[!@#%^&*?+~]", value)) or all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", r"\d"))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: few texts need more than two of them."""
    return re.compile(pattern)


def _capitals(text: str) -> str:
    return re.sub(r"_(?:READ|WRITE)$", "", re.sub(r"\W+", "_", text.upper()).strip("_"))
