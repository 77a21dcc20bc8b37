"""The runs and tables of SSAN (Geng et al. 2020)."""
