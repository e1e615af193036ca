"""The settings file as something to look at, change and go back in: a document, its revisions, and what a change means."""
