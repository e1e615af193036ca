"""The console: pages rendered by the server, one noun a module, in one frame."""
