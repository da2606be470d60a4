"""One module a page: it reads, arranges what its template needs, and writes no HTML and no SQL."""
