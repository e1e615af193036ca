"""Parse requests: asked for once, searched, decoded, and read by cursor."""
