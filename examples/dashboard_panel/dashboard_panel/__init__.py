"""A sample plugin: notes about jobs, on a page, a panel and by an action of its own."""
