"""RAU (Zhong et al. 2018): `python -m experiments.rau --help`."""
