"""Where files go: a folder, or S3."""
