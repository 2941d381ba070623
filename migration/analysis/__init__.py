"""Facts of a whole notebook: pure passes in a fixed order, each a function of the cells and of earlier facts."""
