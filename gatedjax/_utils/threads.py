"""The number of threads of NumPy's and SciPy's linear algebra."""

import contextlib

from threadpoolctl import threadpool_limits


def limit_to_one_thread() -> contextlib.AbstractContextManager[object]:
    """Limits BLAS to one thread in a block, if threadpoolctl is installed."""
    return threadpool_limits(1, "blas")
