"""A stand-in for google.colab, written from its public behaviour: what the page and the machine do there, files and
folders of one test do here. `machine` says which; it is read from the file that COLAB_STAND_IN names."""

from google.colab import auth, data_table, drive, files, output, runtime, userdata, widgets  # noqa: F401
