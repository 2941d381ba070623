"""Former configuration keys, which configuration files, overrides, environment variables and checkpoints of older
versions may contain. A former name is accepted, with a warning that names the current one. A removed key is accepted
with the value that is now the only one; any other value is an error, except in a checkpoint whose weights do not
depend on it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from core.config.overrides import leaves, nested

log = logging.getLogger(__name__)


class Rename(NamedTuple):
    """The current name of a key or section, and the current values of former values (None: the values are the same).
    ignored: a former value without effect where the current key is set too."""

    key: str
    values: Mapping[Any, Any] | None = None
    ignored: Any = None

    def value_of(self, former: Any) -> Any:
        """The current form of a former value; an unknown value is left to the schema, which rejects it."""
        known = self.values is not None and isinstance(former, str) and former in self.values
        return self.values[former] if known else former


RENAMED: Mapping[str, Rename] = {
    "model.encoder_sees": Rename("model.drop_masked_tokens", {"all": False, "visible": True}),
    "model.patch_stride": Rename("model.patch_length"),
    "data.parts": Rename("data.splits"),
    "device.enable_mixed_precision": Rename("device.amp", ignored=True),
    "device.kind": Rename("device.prefer"),
    "device.precision": Rename("precision"),
    "device.threads": Rename("max_threads"),
    "scoring.model_share": Rename("scoring.model_weight"),
    "training.gradient_clip": Rename("gradient_clip_val"),
}


class Removal(NamedTuple):
    """The value of a removed key that is now the only one, and the problem with any other. of_weights: a model that was
    trained with another value is another model."""

    value: Any
    problem: str
    of_weights: bool = False


REMOVED: Mapping[str, Removal] = {
    "scoring.threshold.method": Removal(
        "conformal", "was removed: the conformal quantile is extrapolated where the calibration data is too little"
    ),
    "model.norm_target": Removal(False, "was removed: train without it", of_weights=True),
}

# The configurations of Colab are never changed, so they keep former names.
_NEVER_CHANGED = ("configs/patchtst_ssl.yaml:", "configs/swinmae_ssl.yaml:")


def current_key(key: str) -> str:
    """The current name of a dotted key, which may be within a renamed section."""
    for former, rename in RENAMED.items():
        if key == former or key.startswith(f"{former}."):
            return rename.key + key.removeprefix(former)
    return key


def with_current_keys(
    values: Mapping[str, Any], origins: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Nested values and their origins (in the order in which they were set) under the current names, and without
    removed keys.

    A key that is set under both names has the value that was set last. Without origins, it has the value under the
    former name: files of Landfall contain current names only, so a user has set the former one. Warns of former names
    that have an origin.
    """
    origins, leaf = dict(origins or {}), dict(leaves(values))
    found: dict[str, str] = {}  # the current name of each former one that is set
    for former, rename in RENAMED.items():
        taken = {path: ".".join(map(str, path)) for path in leaf}
        taken = {path: key for path, key in taken.items() if key == former or key.startswith(f"{former}.")}
        _warn(former, [origins[key] for key in taken.values() if key in origins])
        for path, key in taken.items():
            value, found[key] = rename.value_of(leaf.pop(path)), current_key(key)
            current = tuple(found[key].split("."))
            has_no_effect = current in leaf and value == rename.ignored
            if not has_no_effect and not _is_later(found[key], key, origins):
                leaf[current] = value
    for key, removal in REMOVED.items():
        path = tuple(key.split("."))
        is_saved = key not in origins and not removal.of_weights
        if path in leaf and (is_saved or leaf[path] == removal.value):
            del leaf[path]
            if (origin := origins.pop(key, None)) is not None:
                log.warning("%s = %s no longer has an effect; set by %s", key, removal.value, origin)
    order = [key for key in origins if not (key in found and _is_later(found[key], key, origins))]
    renamed: dict[str, str] = {}
    for key in order:
        renamed.pop(current_key(key), None)
        renamed[current_key(key)] = origins[key]
    return nested(leaf.items()), renamed


def _warn(former: str, origins: Sequence[str]) -> None:
    """One warning for a former name, also if it is a section of which many keys are set."""
    sources = list(dict.fromkeys(origin for origin in origins if not origin.startswith(_NEVER_CHANGED)))
    if sources:
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        log.warning("%s is now %s; set by %s%s", former, RENAMED[former].key, sources[0], more)


def _is_later(key: str, other: str, origins: Mapping[str, str]) -> bool:
    """Whether `key` was set after `other`."""
    order = list(origins)
    return key in origins and other in origins and order.index(key) > order.index(other)
