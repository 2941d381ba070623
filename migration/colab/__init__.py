"""What Colab is in a notebook: its names, its drive, and how code asks whether it runs there."""
