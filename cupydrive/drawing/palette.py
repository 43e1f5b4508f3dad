"""The colors of pictures and of the gallery's charts: light on dark, safe for color blindness."""


class Palette:
    """Colors, ``"#RRGGBB"``.

    Drawing colors have a contrast of 3 or more with ``STAGE`` and ``FLOOR``.
    """

    STAGE = "#12181F"  # background
    FLOOR = "#1C2530"  # area where agents may move, and panels
    GRID = "#33414F"  # unobtrusive lines and frames
    INK = "#E8EDF2"  # text
    SOFT = "#A9B7C4"  # secondary text and lines
    BLUE = "#4CB5F9"
    ORANGE = "#FF8A3D"
    GREEN = "#2BC48A"
    PINK = "#E58FBF"
    YELLOW = "#F2C14E"
    GRAY = "#8795A3"  # finished objects
    SHADES = ("#16324D", "#2A669C", "#6CAEE0", "#E3F1FB")  # color maps, low to high
    CURVES = (BLUE, ORANGE, GREEN, PINK, YELLOW, SOFT)  # curves of charts
