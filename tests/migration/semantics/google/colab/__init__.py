"""A simulated google.colab, written from its public behaviour: files and folders of a test replace the page and the
machine. `machine` says which; it is read from the file that COLAB_STAND_IN names."""

from google.colab import auth, data_table, drive, files, output, runtime, userdata, widgets  # noqa: F401
