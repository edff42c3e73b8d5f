"""Test oracle: tiny seeded models, their GGUF files, and what transformers computes with them."""
