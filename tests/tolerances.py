"""The one table of tolerances; a test that needs a looser one says why beside it."""

F32 = {"rtol": 1e-5, "atol": 1e-6}
BF16 = {"rtol": 2e-2, "atol": 2e-2}
F64 = {"rtol": 1e-10, "atol": 1e-12}
