"""Whatever the user passed, as an RGB picture.

    image = to_rgb("photo.jpg")        # path, bytes, binary file, PIL.Image or uint8 array
    image.mode                         # "RGB", upright, without alpha

What each mode becomes:

====================  ================================================================
alpha, tRNS           composited on white (RGBA, LA, PA, RGBa, La, palettes with
                      transparency, a transparent colour of a grey or RGB PNG)
I;16 and relatives    value / 257, rounded
I                     as 16 bits: values in [0, 65535] / 257; others are refused
F                     values in [0, 1] * 255, rounded; others are refused
CMYK                  through the embedded ICC profile to sRGB if it is usable, else
                      Pillow's plain conversion
1, L, P, RGBX,        Pillow's conversion; ICC profiles of RGB and grey pictures are
YCbCr, LAB, HSV       ignored, as the reference does
====================  ================================================================

Pillow keeps only the high byte of 16-bit RGB, so such a picture may be one step of 255
darker than its value / 257.
"""

from jmm.images.reading import MAX_IMAGE_PIXELS, ImageSource, is_image, to_rgb

__all__ = ["MAX_IMAGE_PIXELS", "ImageSource", "is_image", "to_rgb"]
