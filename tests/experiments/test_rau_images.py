"""The figures of sample images: which images are drawn, and what is refused."""

import numpy as np
import pytest

from experiments.rau.images import plot_images

pytest.importorskip("matplotlib")


def test_sample_images_are_the_first_of_their_class(np_rng):
    images = np_rng.integers(1, 255, (6, 4, 5))
    labels = np.array([1, 0, 1, 1, 0, 1])
    figure = plot_images(images, labels, ["no", "yes", "never"], per_class=3)
    drawn = [[axes.images[0].get_array() for axes in row if axes.images] for row in grid(figure, 3)]
    for row, wanted in zip(drawn, ([1, 4], [0, 2, 3], []), strict=True):
        assert len(row) == len(wanted)
        for found, index in zip(row, wanted, strict=True):
            np.testing.assert_array_equal(found, images[index])
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == [
        "no",
        "yes",
        "never",
    ]


def grid(figure, columns):
    return [figure.axes[i : i + columns] for i in range(0, len(figure.axes), columns)]


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (np.zeros((2, 3)), np.zeros(2, int), {}, "images must be"),
        (np.zeros((2, 3, 3)), np.zeros(3, int), {}, "labels"),
        (np.zeros((2, 3, 3)), np.array([0, 2]), {}, "labels must be in"),
        (np.zeros((2, 3, 3)), np.zeros(2, int), {"per_class": 0}, "per_class"),
    ],
)
def test_sample_images_that_do_not_fit_are_refused(images, labels, options, message):
    with pytest.raises(ValueError, match=message):
        plot_images(images, labels, ["no", "yes"], **options)
