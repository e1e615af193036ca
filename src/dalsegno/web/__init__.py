"""The console: a JSON API and the pages built on it. Reads go through `insight`, writes are jobs and commands."""
