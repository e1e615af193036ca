"""One behavioural suite, run unchanged against SQLite and PostgreSQL. Folders mirror src/dalsegno."""
