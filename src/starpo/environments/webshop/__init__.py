"""WebShop in plain Python: pages, search, reward, catalogues. No server, no Java, no language model."""
