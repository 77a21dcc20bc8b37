"""GA-Net (Xue et al. 2020): `python -m experiments.ga_net --help`."""
