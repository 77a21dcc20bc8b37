"""Raw files: limits on unpacking, archives, lines parsed or set aside, and what a set becomes."""
