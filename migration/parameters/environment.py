"""Environment variables that stand for secrets: which names mean one, and what a secret's variable is called."""

from __future__ import annotations

import re

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:token(?:_(?:read|write))?|pass(?:word|wd|phrase)?|pwd|secret|(?:api|access|secret|auth|private|license|"
    r"account)_?key|credentials?)$|^key$"
)
_NO_SECRET_NAME = re.compile(
    r"(?:placeholder|initiali[sz]er|special|mask|bos|eos|sos|eot|pad|unk|oov|blank|sep|cls|start|end|stop|trigger|"
    r"concept|image|text|next|page|prompt|class|instance|audio|video|think|tool)_?token$"
)
_VARIABLES = {
    "Hugging Face token": "HF_TOKEN",
    "Google API key": "GOOGLE_API_KEY",
    "AWS key id": "AWS_ACCESS_KEY_ID",
    "Weights & Biases key": "WANDB_API_KEY",
    "Kaggle key": "KAGGLE_KEY",
    "ngrok token": "NGROK_AUTHTOKEN",
}


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a token, key or password (`hf_token`, `apiKey`, `DB_PASSWORD`)."""
    words = _snake(name).lower()
    return bool(_SECRET_NAME.search(words)) and not _NO_SECRET_NAME.search(words)


def variable_for(name: str, kind: str = "") -> str:
    """The environment variable for a secret given to `name`, of a kind that `migration.secrets` tells.

    The name of a variable in capitals is kept, else the customary name for the kind is taken.
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
    return _capitals(_snake(name) if name else kind) or "SECRET"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _capitals(text: str) -> str:
    return re.sub(r"_(?:READ|WRITE)$", "", re.sub(r"\W+", "_", text.upper()).strip("_"))
