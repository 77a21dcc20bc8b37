"""Your own text: read it, train on it, predict, evaluate and explain."""
