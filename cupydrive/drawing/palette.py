"""The colours of pictures and of the gallery's charts: light on dark, told apart with any of the
common colour blindnesses.
"""


class Palette:
    """Colours, ``"#RRGGBB"``.

    Those that something is drawn in have a contrast of 3 or more with ``STAGE`` and ``FLOOR``.
    """

    STAGE = "#12181F"  # behind everything
    FLOOR = "#1C2530"  # where agents may go; panels
    GRID = "#33414F"  # lines on it, and frames: to be seen, not looked at
    INK = "#E8EDF2"  # text
    SOFT = "#A9B7C4"  # text of less weight, and lines that are no agents
    BLUE = "#4CB5F9"
    ORANGE = "#FF8A3D"
    GREEN = "#2BC48A"
    PINK = "#E58FBF"
    YELLOW = "#F2C14E"
    GREY = "#8795A3"  # what is over
    SHADES = ("#16324D", "#2A669C", "#6CAEE0", "#E3F1FB")  # of fields, low to high
    CURVES = (BLUE, ORANGE, GREEN, PINK, YELLOW, SOFT)  # of charts
