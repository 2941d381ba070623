"""A step that does not stop when it is asked to."""

import os
import signal
import sys
import time
from pathlib import Path

signal.signal(signal.SIGINT, signal.SIG_IGN)
Path(sys.argv[-1], "deaf.part").write_text(str(os.getpid()))
Path(sys.argv[-1], "deaf.part").rename(Path(sys.argv[-1], "deaf"))
time.sleep(300)
