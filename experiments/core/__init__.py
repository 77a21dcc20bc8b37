"""What the commands of all papers share: command lines, records, text, hardware."""
