"""Functions of google.colab: files, secrets, the drive, the output, images."""

from __future__ import annotations

from tests.migration.semantics.outcome import Case, cells

CASES = (
    Case(
        "uploads",
        cells(r"""
from google.colab import files
uploaded = files.upload()
# ----
for fn in uploaded.keys():
    print('User uploaded file "{name}" with length {length} bytes'.format(name=fn, length=len(uploaded[fn])))
# ----
name = next(iter(uploaded))
text = open(name).read()
# ----
import io
first = io.BytesIO(uploaded['data.csv']).read()
# ----
def again():
    return list(files.upload().values())[0], sorted(files.upload(target_dir='in'))
found = again()
found
# ----
files.upload_file('/content/kept.csv')
open('kept.csv').read()
"""),
        ("LF201", "LF205", "LF402"),
        uploads={"data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "uploads under other names",
        cells(r"""
from google.colab import files as colab_files, drive as d
content = colab_files.upload()
# ----
import google.colab
import google.colab.files
more = google.colab.files.upload()
# ----
from google import colab
three = colab.files.upload().keys()
three = list(three)
# ----
from google.colab.files import upload, download
four = list(upload())
# ----
import google.colab.files as gf
chosen = list(gf.upload().values()) or ['default']
"""),
        ("LF201",),
        uploads={"b.bin": b"\x00\xff", "a.txt": "text"},
    ),
    Case(
        "downloads",
        cells(r"""
from google.colab import files
open('/content/model.txt', 'w').write('weights')
files.download('/content/model.txt')
# ----
for n in range(2):
    open(f'part{n}.txt', 'w').write(str(n))
    files.download(f'part{n}.txt')
# ----
import google.colab as gc
gc.files.download('/content/out.txt') if n > 5 else print('kept')
# ----
files.view('/content/model.txt')
# ----
try:
    files.download('none.txt')
except FileNotFoundError as error:
    print(error)
# ----
files.download('none.txt')
# ----
done = True
"""),
        ("LF201", "LF402"),
    ),
    Case(
        "secrets",
        cells(r"""
from google.colab import userdata
token = userdata.get('TOKEN')
# ----
import os
os.environ['API_KEY'] = userdata.get("API_KEY")
print(len(os.environ['API_KEY']))
# ----
try:
    other = userdata.get('MISSING')
except userdata.SecretNotFoundError:
    other = 'default'
# ----
from google.colab.userdata import get as secret, NotebookAccessError
def client(name='TOKEN'):
    return {'key': secret(name)}
client()
# ----
try:
    userdata.get('MISSING')
except (userdata.NotebookAccessError, userdata.TimeoutException, userdata.SecretNotFoundError) as error:
    print(type(error).__name__)
# ----
userdata.get('MISSING')
# ----
done = True
"""),
        ("LF201",),
        secrets={"TOKEN": "t-1 $x", "API_KEY": "k-2"},
    ),
    Case(
        "the drive at a variable place",
        cells(r"""
import os
from google.colab import drive
mount_point = '/content/gdrive'
drive.mount(mount_point, force_remount=True)
# ----
root = os.path.join(mount_point, 'My Drive')
path = os.path.join(root, 'in', 'data.csv')
print(open(path).read())
# ----
with open(mount_point + '/MyDrive/out.txt', 'w') as file:
    file.write('drive')
# ----
drive.flush_and_unmount()
"""),
        ("LF201", "LF402"),
        drive={"in/data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "the drive in other words",
        cells(r"""
from google.colab import drive as gdrive
gdrive.mount("/content/gdrive")
base = "/content/gdrive/My Drive/"
print(sorted(__import__('os').listdir(base)))
# ----
!ls "/content/gdrive/My Drive/in"
!cat /content/gdrive/My\ Drive/in/data.csv
# ----
%cd "/content/gdrive/My Drive/in"
text = open('data.csv').read()
# ----
%cd /content/gdrive/MyDrive/in
!pwd
# ----
%cd /content
!ln -s /content/gdrive/My\ Drive/ mydrive
!cat mydrive/in/data.csv
!rm mydrive
# ----
!mkdir -p '/content/gdrive/My Drive/out' && cp gdrive/MyDrive/in/data.csv "/content/gdrive/My Drive/out/"
# ----
%%bash
cat "/content/gdrive/My Drive/in/data.csv" > /content/gdrive/MyDrive/out/copy.csv
"""),
        ("LF203", "LF402", "LF404"),
        drive={"in/data.csv": "a,b\n1,2\n"},
    ),
    Case(
        "names that become something else",
        cells(r"""
from google.colab import files, drive
files = ['a.csv', 'b.csv']
for file in files:
    print(file)
# ----
drive = {'letter': 'C'}
drive['letter']
# ----
class drive:
    def mount(self, place):
        return place
drive().mount('x')
# ----
def output(text):
    return text.upper()
output('auth')
# ----
text = "drive.mount, files.upload(), colab"
len(text)
"""),
    ),
    Case(
        "output and tables",
        cells(r"""
from google.colab import output
print('before')
output.clear()
print('after')
# ----
with output.use_tags('part'):
    print('tagged')
# ----
output.register_callback('notebook.add', lambda a: a + 1)
output.enable_custom_widget_manager()
output.no_vertical_scroll()
# ----
from google.colab import data_table
data_table.enable_dataframe_formatter()
%load_ext google.colab.data_table
import pandas as pd
frame = pd.DataFrame({'a': [1, 2]})
frame
# ----
data_table.DataTable(frame, include_index=False, num_rows_per_page=5)
# ----
from google.colab import widgets
tabs = widgets.TabBar(['one', 'two'])
with tabs.output_to('one'):
    print(1)
with tabs.output_to(1):
    print(2)
# ----
output.serve_kernel_port_as_window(8000)
output.serve_kernel_port_as_iframe(8000, path='/docs')
# ----
from google.colab import runtime
runtime.unassign()
"""),
        ("LF201", "LF204", "LF563"),
    ),
    Case(
        "images",
        cells(r"""
import numpy as np
from google.colab.patches import cv2_imshow
image = np.zeros((4, 5, 3), dtype='uint8')
image[:, :, 0] = 200
cv2_imshow(image)
# ----
cv2_imshow(np.arange(20).reshape(4, 5) * 20.0)
# ----
import google.colab.patches as patches
patches.cv2_imshow(np.full((2, 2, 4), [1, 2, 3, 40]))
# ----
from google.colab import patches as p
def show(picture, imshow=p.cv2_imshow):
    imshow(picture)
show(image[:2])
"""),
        ("LF201",),
    ),
    Case(
        "signing in",
        cells(r"""
from google.colab import auth
auth.authenticate_user()
print('Authenticated')
# ----
import google.colab.auth
project = 'plant'
google.colab.auth.authenticate_user(project_id=project)
"""),
        ("LF201",),
        environment={"GOOGLE_APPLICATION_CREDENTIALS": "/dev/null"},
    ),
    Case(
        "folders that the notebook names itself",
        cells(r"""
import os
from google.colab import files
WORK_DIR = os.environ['WORK_DIR'] = '/content/mine'
DRIVE_DIR = 'none'
os.makedirs(WORK_DIR)
%cd /content/mine
# ----
names = sorted(files.upload())
# ----
!cat /content/mine/data.csv && echo $WORK_DIR
# ----
files.download('data.csv')
"""),
        ("LF201", "LF402", "LF404"),
        uploads={"data.csv": "a,b\n1,2\n"},
    ),
)
