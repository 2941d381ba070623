"""Signing in always succeeds."""


def authenticate_user(clear_output=True, project_id=None):
    pass
