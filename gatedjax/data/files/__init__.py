"""Raw files: archives with limits on unpacking, lines that are parsed or set aside, sources."""
