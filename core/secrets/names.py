"""Recognises names of secrets. Four tests, from the strictest to the most cautious:

- `is_secret_name`: a variable of this name contains a secret (`hf_token`, `apiKey`, `DB_PASSWORD`).
- `suggests_secret`: a value of this name is a secret if it looks random (also `wandb_key` and `COMET_KEY`).
- `has_secret_word`: a value of this name must not be written to files and logs (also `token_for_upload`).
- `is_short_secret`: a text is a secret under a name that also means other things, such as `pin`.

They are false for names of model tokens or positions, such as `mask_token`.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Alternatives of a word in the name of a secret, for patterns that ignore case.
WORDS = (
    r"token|secret|passw(?:or)?d|pwd|passphrase|passcode|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key"
    r"|shared[_-]?access[_-]?key|credentials?|authorization"
)
_SECRET_WORD = re.compile(rf"(?:^|[^a-z])(?:{WORDS})(?:$|[^a-z])", re.IGNORECASE)
# Plural names: their numbers are counts, their texts are secrets.
_PLURAL = re.compile(
    r"(?:^|[^a-z])(?:(?:api|access|auth|bearer|hf|refresh|session|user)[_-]?tokens|tokens|secrets|passw(?:or)?ds|"
    r"api[_-]?keys|access[_-]?keys|private[_-]?keys)$",
    re.IGNORECASE,
)
# In lower case with underscores.
_VARIABLE = re.compile(
    r"(?:^|_)(?:token(?:_(?:read|write))?|pass(?:word|wd|phrase)?|pwd|secret|(?:api|access|secret|auth|private|license|"
    r"account)_?key|credentials?|passcode)$|^key$|^pw$"
    r"|^(?:\w+_)?(?:admin|db|ftp|login|mail|mqtt|opc|root|smb|smtp|ssh|user|wifi)_?pw$"
)
_KEY = re.compile(
    r"(?:^|[_-])(?:\w*api|app|auth|access|account|secret|private|service|subscription|client|consumer|encryption|"
    r"license|master|session|signing|storage|user|write|ingest|admin|bot|hub|hf|wandb|kaggle|openai|github|ngrok|"
    r"aws|azure|gcp|google|pinecone|cohere|comet|roboflow|mapbox|weather|\w*ai)[_-]?key(?:[_-]id)?$"
    r"|token$|secret$",
    re.IGNORECASE,
)
_CONSTANT_KEY = re.compile(r"(?<!PUBLIC)(?<!PRIMARY)(?<!CACHE)(?<!FOREIGN)(?<!HASH)(?<!SORT)_KEY$")
_PUBLIC = re.compile(
    r"public[_-]?(?:api[_-]?)?key$|(?:_|^)non_?secret$|aws_?access_?key_?id$|(?:num|max|min|public|site)[_-]?token$",
    re.IGNORECASE,
)
_SPECIAL_TOKEN = re.compile(
    r"(?:placeholder|initiali[sz]er|special|mask|bos|eos|sos|eot|pad|unk|oov|blank|sep|cls|start|end|stop|trigger|"
    r"concept|image|text|next|page|prompt|class|instance|audio|video|think|tool)[_-]?token$",
    re.IGNORECASE,
)
# Names that also mean other things (a contact of a board, a pressure, a modulation), with the texts that are secrets:
# PINs and one-time passwords, and keys of a wireless network.
_SHORT = (
    (re.compile(r"(?:^|[^a-z])(?:pin(?:[_-]?code)?|otp)$", re.IGNORECASE), re.compile(r"(?:\d[ -]?){4,16}")),
    (re.compile(r"(?:^|[^a-z])psk$", re.IGNORECASE), re.compile(r"(?!.*psk)\S.{6,}\S", re.IGNORECASE)),
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    name = with_underscores(name)
    return _VARIABLE.search(name.lower()) is not None and not _SPECIAL_TOKEN.search(name)


def suggests_secret(name: str) -> bool:
    is_key = _KEY.search(name) or _CONSTANT_KEY.search(name)
    return is_key is not None and not _SPECIAL_TOKEN.search(name) and not _PUBLIC.search(name)


@lru_cache(4096)
def has_secret_word(name: str) -> bool:
    name = with_underscores(name)
    return _SECRET_WORD.search(name) is not None and not _SPECIAL_TOKEN.search(name)


@lru_cache(4096)
def is_short_name(name: str) -> bool:
    """Whether texts of a certain form are secrets under this name: `pin`, `wifi_psk`."""
    return any(names.search(with_underscores(name)) for names, _ in _SHORT)


def is_short_secret(name: str, text: str) -> bool:
    """Whether the text has the form of a secret under such a name: `pin = '4711'`, but not `pin = 'GPIO17'`."""
    name = with_underscores(name)
    return any(names.search(name) and texts.fullmatch(text) for names, texts in _SHORT)


def is_plural(name: str) -> bool:
    """Whether it names several secrets, or a number of them, as `max_tokens` does."""
    return _PLURAL.search(name) is not None


def with_underscores(name: str) -> str:
    """`apiKey` as `api_Key`."""
    return _CAMEL.sub("_", name)
