"""`landfall devices`: what the hardware is, what a run would use, and what would make runs better.

Layers, lowest first: frameworks, document → advice, doctor, fitting → report, text → command.
"""
