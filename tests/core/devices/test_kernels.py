import logging

from core.config.execution import Profile
from core.devices.kernels import prepare_cublas


def test_the_cublas_workspace_is_set_unless_the_user_set_it(caplog):
    environ: dict[str, str] = {}
    prepare_cublas(Profile(deterministic=False), environ)
    assert environ == {}
    prepare_cublas(Profile(), environ)  # deterministic by default
    assert environ == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    environ = {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}
    prepare_cublas(Profile(deterministic=True), environ)
    assert (environ, caplog.text) == ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, "")
    environ = {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}
    with caplog.at_level(logging.WARNING):
        prepare_cublas(Profile(deterministic=True), environ)
    assert environ == {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}
    assert "CUBLAS_WORKSPACE_CONFIG = :0:0 is not deterministic" in caplog.text
