"""The built-in model: its world of pictures and captions, its network, training and export."""
