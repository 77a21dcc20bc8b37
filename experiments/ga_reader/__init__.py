"""The GA Reader (Dhingra et al. 2017): `python -m experiments.ga_reader --help`."""
