"""Where a figure has its cells and their names."""

import numpy as np


def centres(edges):
    return (np.asarray(edges)[1:] + np.asarray(edges)[:-1]) / 2


def check_names(axes, cells, rows, columns, rotation=0.0):
    """Checks that the names of rows and columns are beside their cells; columns may be rotated."""
    x, y = np.moveaxis(cells.get_coordinates(), 2, 0)
    places = {(text.get_text(), text.get_rotation()): text.get_position() for text in axes.texts}
    if rows:
        np.testing.assert_allclose([places[name, 0.0][1] for name in rows], centres(y[:, 0]))
    if columns:
        np.testing.assert_allclose([places[name, rotation][0] for name in columns], centres(x[0]))
