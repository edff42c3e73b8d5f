"""A local page over an index: search box, thumbnails, heat maps. ``jmm browse`` serves it.

    with Index.open("my-index") as index, Library(index) as library, Server(library) as server:
        print(server.url)
        server.serve_forever()

``library`` answers, ``server`` speaks HTTP, ``static`` is what the browser runs.
"""

from jmm.browse.library import Library
from jmm.browse.server import Server
from jmm.browse.turns import BusyError
from jmm.search import MissingPageError

__all__ = ["BusyError", "Library", "MissingPageError", "Server"]
