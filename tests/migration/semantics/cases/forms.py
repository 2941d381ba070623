"""Form fields, titles, parameters."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

CASES = (
    Case(
        "form fields",
        cells(r"""
#@title Settings {run: "auto"}
epochs = 3  #@param {type:"integer"}
rate = 0.5  #@param {type:"slider", min:0, max:1, step:0.1}
name = 'plant'  #@param ["plant", "other"]
verbose = True  #@param {type:"boolean"}
print(epochs, rate, name, verbose)
# ----
#@markdown ## Text
#@markdown more text
text = "a # b"  #@param {type:"string"}
day = "2024-01-02"  #@param {type:"date"}
choice = "x"  #@param ["x", "y"] {allow-input: true}
items = [1, 2]  #@param {type:"raw"}
nothing = None  #@param {type:"raw"}
# ----
#@markdown A text of its own
size = epochs * 2  #@param {type:"integer"}
print(size)
# ----
epochs_again = 1  #@param {type:"integer"}
epochs_again += 1
# ----
if verbose:
    deep = 7  #@param {type:"integer"}
else:
    deep = 8  #@param {type:"integer"}
deep
# ----
steps = 5  #@param {type:"integer"}
# ----
steps = 6  #@param {type:"integer"}
steps
# ----
print('x')  #@title Late title
"""),
        ("LF601", "LF603", "LF610"),
    ),
    Case(
        "form fields with paths",
        cells(r"""
from google.colab import drive
drive.mount('/content/drive')
# ----
data = '/content/data.csv'  #@param {type:"string"}
out = "/content/drive/MyDrive/out"  #@param {type:"string"}
folder = '/content'  #@param {type:"string"}
print(data, out, folder)
# ----
import os
os.makedirs(out, exist_ok=True)
open(f'{out}/copy.csv', 'w').write(open(data).read())
# ----
!cat {data}
!cp $data "$out/second.csv"
"""),
        ("LF203", "LF402", "LF603"),
        start="work",
        files={"data.csv": "a,b\n1,2\n"},
    ),
)
