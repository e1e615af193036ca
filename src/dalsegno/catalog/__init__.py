"""The music catalog: pools, playlists, songs and files, and the services collect, sync, download and upload."""
