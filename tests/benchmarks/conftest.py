"""The score tables that tests of inference make by hand."""

from tests.inference.conftest import make_table  # noqa: F401
