"""The number of threads of NumPy's and SciPy's linear algebra."""

import contextlib

from threadpoolctl import threadpool_limits


def limit_to_one_thread() -> contextlib.AbstractContextManager[object]:
    """Limits BLAS to one thread in the block of the context manager that it returns.

    A sum by several threads has other bits, which a solver makes larger from step to step. The
    vectors of a solver are short, so that several threads also make a step ten times as long.
    """
    return threadpool_limits(1, "blas")
