"""Secrets of the person, each shared with the notebook."""

from google.colab.machine import machine


class NotebookAccessError(Exception):
    pass


class SecretNotFoundError(Exception):
    pass


class TimeoutException(Exception):
    pass


def get(key):
    if key not in machine()["secrets"]:
        raise SecretNotFoundError(f"Secret {key} does not exist.")
    return machine()["secrets"][key]
