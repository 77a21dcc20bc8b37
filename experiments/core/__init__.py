"""Parts that the commands of all papers share: command lines, records, texts, tables, hardware."""
