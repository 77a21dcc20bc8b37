"""The data sets, one file for each or for each family."""
