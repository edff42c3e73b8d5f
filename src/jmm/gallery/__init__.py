"""A few dozen pictures that the package draws itself, and queries about them."""

from jmm.gallery.answers import Answer, answer, sheet
from jmm.gallery.pictures import QUERIES, Entry, pictures

__all__ = ["QUERIES", "Answer", "Entry", "answer", "pictures", "sheet"]
