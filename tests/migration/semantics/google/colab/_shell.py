"""Differences between Colab's IPython and a current plain one: `!cmd &`, `%shell`, `%tensorflow_version`,
comments above a cell magic, and the indentation of the first line."""

import re
import subprocess

from ipykernel.zmqshell import ZMQInteractiveShell

_ABOVE_MAGIC = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)+(?=[ \t]*%%\S)")


def _without_comments_above_magic(lines):
    text = "".join(lines)
    above = _ABOVE_MAGIC.match(text)
    return text[above.end() :].splitlines(keepends=True) if above else lines


def _without_first_indentation(lines):
    indent = re.match(r"[ \t]*", "".join(lines[:1]))[0]
    return [line.removeprefix(indent) for line in lines]


class Shell(ZMQInteractiveShell):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.input_transformers_cleanup.insert(1, _without_first_indentation)  # below that for empty lines
        self.input_transformers_cleanup.insert(0, _without_comments_above_magic)
        self.register_magic_function(lambda line: self.system(line), "line", "shell")
        self.register_magic_function(lambda line, cell: self.system(cell), "cell", "shell")
        self.register_magic_function(lambda line: None, "line", "tensorflow_version")
        self.register_magic_function(lambda line: None, "line", "xterm")

    def system(self, cmd):
        if not cmd.rstrip().endswith("&"):
            return super().system(cmd)
        expanded = self.var_expand(cmd, depth=1)
        subprocess.run(["/bin/bash", "-c", expanded], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return None
