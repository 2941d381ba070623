"""The device layer: what hardware there is (`detect`) and what a run does with it (`manager`)."""
