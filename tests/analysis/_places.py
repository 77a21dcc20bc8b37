"""Where a figure has its cells, their names and the bar of its shades, and how light they are."""

import numpy as np


def centres(edges):
    return (np.asarray(edges)[1:] + np.asarray(edges)[:-1]) / 2


def lightness(colours):
    """The luminance of colours [..., 3 or 4], between 0 and 1."""
    return np.asarray(colours)[..., :3] @ (0.2126, 0.7152, 0.0722)


def check_names(axes, cells, rows, columns, rotation=0.0):
    """Checks that the names of rows and columns are beside their cells; columns may be rotated."""
    x, y = np.moveaxis(cells.get_coordinates(), 2, 0)
    places = {(text.get_text(), text.get_rotation()): text.get_position() for text in axes.texts}
    if rows:
        np.testing.assert_allclose([places[name, 0.0][1] for name in rows], centres(y[:, 0]))
    if columns:
        np.testing.assert_allclose([places[name, rotation][0] for name in columns], centres(x[0]))


def check_bar(figure):
    """Checks that the bar of the shades is in the figure with its label, and over no text."""
    sheet, bar = figure.axes
    box, (width, height) = bar.get_tightbbox(), figure.bbox.size
    assert 0 <= box.x0 < box.x1 <= width
    assert 0 <= box.y0 < box.y1 <= height
    assert [t.get_text() for t in sheet.texts if box.overlaps(t.get_window_extent())] == []
