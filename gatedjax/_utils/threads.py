"""The number of threads of NumPy's and SciPy's linear algebra."""

import contextlib


def limit_to_one_thread() -> contextlib.AbstractContextManager[object]:
    """Limits BLAS to one thread in a block, if threadpoolctl is installed."""
    # The vectors of a solver are short: with several threads a step takes ten times as long.
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, "blas")
