"""Real processes, really killed."""
