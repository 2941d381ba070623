"""Things of the user and the page: files to upload, the folder of downloads, the drive, secrets."""

import json
import os
from pathlib import Path


def machine() -> dict:
    """`uploads`, `downloads`, `drive`, `shared_drives` are folders, `secrets` are names with values."""
    return json.loads(Path(os.environ["COLAB_STAND_IN"]).read_text(encoding="utf-8"))
