"""Examples as columns, and batches of them by step."""
