"""The classes with the interface of scikit-learn."""
