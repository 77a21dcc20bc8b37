"""What became of every line, and what the texts look like."""
