"""The gallery: trains every environment, renders it, and writes its page."""
