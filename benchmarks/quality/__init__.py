"""Retrieval quality: sets of pages, retrievers, and the intervals around their scores."""
