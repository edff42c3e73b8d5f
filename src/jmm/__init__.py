"""Pictures and text into vectors, in this process, from GGUF models."""
