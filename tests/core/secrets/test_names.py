import pytest

from core.secrets.finding import variable_for
from core.secrets.names import is_secret_name


@pytest.mark.parametrize(
    "name", ["token", "hf_token", "HF_TOKEN", "apiKey", "api_key", "DB_PASSWORD", "Ngrok_Token", "key"]
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["max_tokens", "initializer_token", "keys", "key_frames", "tokenizer", "api_secret_name", "mask_token"]
)
def test_names_of_other_things(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name, kind, variable",
    [
        ("token", "Hugging Face token", "HF_TOKEN"),
        ("HUGGING_FACE_HUB_TOKEN", "Hugging Face token", "HUGGING_FACE_HUB_TOKEN"),
        ("", "OpenAI key", "OPENAI_API_KEY"),
        ("hf_token_write", "", "HF_TOKEN"),
        ("apiKey", "value of apiKey", "API_KEY"),
        ("", "value of wandb_key", "WANDB_KEY"),
        ("", "GitHub token", "GITHUB_TOKEN"),
        ("", "password in a URL", "PASSWORD_IN_A_URL"),
    ],
)
def test_variables_are_named_as_is_customary(name, kind, variable):
    assert variable_for(name, kind) == variable
