"""The number of threads of NumPy's and SciPy's linear algebra."""

import contextlib


def limit_to_one_thread() -> contextlib.AbstractContextManager[object]:
    """Limits BLAS to one thread if threadpoolctl is installed; this changes only the time."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")
