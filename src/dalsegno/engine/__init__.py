"""The moving parts: submit, plan, claim, execute, settle, rescue. It does not know what a song is."""
