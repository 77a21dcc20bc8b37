"""SSAN (Geng et al. 2020): runs and tables."""
