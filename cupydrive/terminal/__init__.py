"""Progress lines, in a terminal and in a notebook."""
