"""Embeds three pictures and a query, and prints the scores."""

from PIL import Image, ImageDraw

from jmm import Embedder


def page(text: str, colour: str) -> Image.Image:
    """A page with a coloured bar and a line of text."""
    picture = Image.new("RGB", (420, 594), "white")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((40, 80, 380, 200), fill=colour)
    draw.text((40, 240), text, fill="black", font_size=28)
    return picture


pages = {name: page(name, name) for name in ("red", "green", "blue")}

with Embedder() as embedder:  # Embedder("model.gguf", "mmproj.gguf") for a real model
    vectors = embedder.encode_images(pages.values())
    query = embedder.encode_query("a green bar")

for name, score in zip(pages, vectors @ query, strict=True):
    print(f"{score:+.4f}  {name}")
print("The built-in model is untrained: its vectors carry no meaning yet.")
