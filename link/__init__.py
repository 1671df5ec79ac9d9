"""The link to Redis that producers and workers share: clients, what counts as away, tasks that end for certain."""
