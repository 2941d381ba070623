"""What Colab means in a notebook: its names, paths and forms, and how code asks whether it runs there."""
