"""Drawings of sample images of a data set."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gatedjax.analysis._figure import new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_images(
    images: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    path_stem: str | Path | None = None,
    *,
    per_class: int = 8,
    title: str | None = None,
) -> "Figure":
    """Draws a row per class with its first images. Each image [rows, columns] is drawn from its 0
    to its maximum, black on white; a class with fewer images has a shorter row. Raises ValueError
    if shapes, labels or per_class do not fit."""
    images, labels = np.asarray(images), np.asarray(labels)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"images must be [n, rows, columns] and labels [n], got {images.shape}, {labels.shape}"
        )
    if per_class < 1:
        raise ValueError(f"per_class must be at least 1, got {per_class}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(class_names):
        raise ValueError(
            f"labels must be in [0, {len(class_names)}), got {labels.min()} to {labels.max()}"
        )
    rows = len(class_names)
    with style():
        figure = new_figure(0.55 * per_class + 1.3, 0.55 * rows + 0.5)
        panels = figure.subplots(rows, per_class, squeeze=False)
        for number, (name, line) in enumerate(zip(class_names, panels, strict=True)):
            of_class = np.flatnonzero(labels == number)[:per_class]
            for axes in line:
                axes.set_axis_off()
            for axes, index in zip(line, of_class, strict=False):
                axes.imshow(images[index], cmap="gray_r", vmin=0, interpolation="nearest")
            line[0].text(
                -0.15,
                0.5,
                name,
                ha="right",
                va="center",
                transform=line[0].transAxes,
                clip_on=False,
            )
        if title is not None:
            figure.suptitle(title)
        figure.subplots_adjust(0.24, 0.01, 0.99, 0.93 if title else 0.99, 0.06, 0.06)
        save(figure, path_stem)
    return figure
