"""AGT (Guo 2017): `python -m experiments.agt --help`."""
