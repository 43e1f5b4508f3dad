"""A canvas in world coordinates, drawn by Pillow: what environments' ``draw`` functions draw on."""

import numpy as np

from cupydrive.errors import ParameterError

SUPERSAMPLING = 2  # drawn larger, then scaled down: smooth edges


class Canvas:
    """One picture.

    Args:
        width: Pixels, even (video encoders want that).
        height: Pixels, even.
        background: Color.

    Raises:
        ParameterError: If a size is odd or not positive.
    """

    def __init__(self, width=600, height=400, background="#FFFFFF"):
        from PIL import Image, ImageDraw

        for name, size in (("width", width), ("height", height)):
            if size <= 0 or size % 2:
                raise ParameterError(
                    f"{name} = {size}; it must be positive and even, such as {max(2, size + size % 2)}"
                )
        self.width, self.height = width, height
        self.image = Image.new("RGB", (width * SUPERSAMPLING, height * SUPERSAMPLING), background)
        self.pencil = ImageDraw.Draw(self.image)
        self.view(0, width, 0)

    def view(self, left, right, bottom):
        """Set the world coordinates of the edges; units are square and y points up."""
        self.left, self.bottom = left, bottom
        self.scale = self.width * SUPERSAMPLING / (right - left)  # pixels per unit

    def _pixel(self, point):
        x = (point[0] - self.left) * self.scale
        return x, self.height * SUPERSAMPLING - (point[1] - self.bottom) * self.scale

    def line(self, points, width, color):
        """Draw a line through ``points``, ``width`` units wide."""
        pixels = [self._pixel(p) for p in points]
        self.pencil.line(pixels, fill=color, width=max(1, round(width * self.scale)), joint="curve")

    def circle(self, center, radius, color):
        """Draw a filled circle."""
        x, y = self._pixel(center)
        r = max(1.0, radius * self.scale)
        self.pencil.ellipse((x - r, y - r, x + r, y + r), fill=color)

    def rectangle(self, x0, y0, x1, y1, color):
        """Draw a filled rectangle from (x0, y0), below left, to (x1, y1), above right."""
        (left, bottom), (right, top) = self._pixel((x0, y0)), self._pixel((x1, y1))
        self.pencil.rectangle((left, top, right, bottom), fill=color)

    def caption(self, text):
        """Write a line of text above left."""
        from PIL import ImageFont

        font = ImageFont.load_default(size=13 * SUPERSAMPLING)
        self.pencil.text((8 * SUPERSAMPLING, 6 * SUPERSAMPLING), text, fill="#444444", font=font)

    def frame(self):
        """Return the picture, (height, width, 3) uint8."""
        return np.asarray(self.image.resize((self.width, self.height), resample=1))  # 1: Lanczos
