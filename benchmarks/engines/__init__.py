"""One module per competitor; each has a class ``Engine`` that a worker process opens."""
