"""A folder of uploads and a folder of downloads replace the browser."""

import shutil
from pathlib import Path

from google.colab.machine import machine


def upload(target_dir=""):
    uploaded = {}
    for source in sorted(Path(machine()["uploads"]).iterdir()):
        target = Path(target_dir, source.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        number = 0
        while target.exists():
            number += 1
            target = Path(target_dir, f"{source.stem} ({number}){source.suffix}")
        print(f"Saving {source.name} to {target}")  # noqa: T201
        target.write_bytes(source.read_bytes())
        uploaded[str(target)] = source.read_bytes()
    return uploaded


def upload_file(filename):
    sources = sorted(Path(machine()["uploads"]).iterdir())
    if len(sources) != 1:
        raise ValueError("File has not been uploaded, or more than one")
    Path(filename).write_bytes(sources[0].read_bytes())
    print(f"Saved {sources[0].name} to {Path.cwd()}/{filename}")  # noqa: T201


def download(filename):
    if not Path(filename).exists():
        raise FileNotFoundError(f"Cannot find file: {filename}")
    shutil.copyfile(filename, Path(machine()["downloads"], Path(filename).name))


def view(filepath):
    if not Path(filepath).exists():
        raise FileNotFoundError(f"Cannot find file: {filepath}")
