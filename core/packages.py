"""Versions of installed packages."""

from __future__ import annotations

from importlib import metadata


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
