"""`landfall devices`: the hardware, what a run would use, and recommendations.

Layers, lowest first: frameworks, document → advice, doctor, fitting → report, text → command.
"""
