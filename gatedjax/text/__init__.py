"""Your own text: readers of labelled files, and what is trained and predicted with them."""
