"""Images, with the channel order of cv2."""

import PIL.Image
from IPython.display import display


def cv2_imshow(a):
    a = a.clip(0, 255).astype("uint8")
    if a.ndim == 3:
        order = [2, 1, 0, 3] if a.shape[2] == 4 else [2, 1, 0]
        a = a[:, :, order]
    display(PIL.Image.fromarray(a))
