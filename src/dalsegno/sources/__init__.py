"""Where media comes from. One file a source; docs/sources.md shows how to write one."""
