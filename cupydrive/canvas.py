"""A small picture that environments draw on: world coordinates with y up, a few shapes, one caption.

Shapes are drawn at twice the size and scaled down, so that edges are smooth and slow motion is.
"""

import numpy as np

from cupydrive.errors import ParameterError

SUPERSAMPLING = 2


class Canvas:
    """One picture, white at first.

    Args:
        width: Pixels, even: video codecs halve the colour's resolution.
        height: Pixels, even.

    Raises:
        ParameterError: If a size is not a positive even int.
    """

    def __init__(self, width=600, height=400):
        for name, size in (("width", width), ("height", height)):
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 2 or size % 2:
                near = max(2, int(size) // 2 * 2) if isinstance(size, int | float | np.number) and size == size else 400
                raise ParameterError(f"Canvas: {name} = {size!r}; it must be an even int from 2 on, such as {near}")
        self.width, self.height = int(width), int(height)
        self.clear()

    def clear(self):
        """Make everything white again; the view is that of pixels, from the lower left corner."""
        from PIL import Image, ImageDraw

        size = (self.width * SUPERSAMPLING, self.height * SUPERSAMPLING)
        self._image = Image.new("RGB", size, "#FFFFFF")
        self._draw = ImageDraw.Draw(self._image)
        self._text = ""
        self.view(0, self.width, 0)

    def view(self, left, right, bottom, top=None):
        """Show the world from ``left`` to ``right`` and from ``bottom`` up; units are square.

        With ``top``, everything up to there is shown too: the world becomes smaller if it must, and lies in the middle.
        """
        if not left < right or (top is not None and not bottom < top):
            raise ParameterError(
                f"Canvas.view: left = {left}, right = {right}, bottom = {bottom}, top = {top}; "
                "it must be left < right and bottom < top"
            )
        width, height = self._image.size
        self._scale = width / (right - left)
        self._left, self._bottom = left, bottom
        if top is not None:
            self._scale = min(self._scale, height / (top - bottom))
            self._left = (left + right) / 2 - width / self._scale / 2
            self._bottom = (bottom + top) / 2 - height / self._scale / 2

    def _pixel(self, point):
        """Return where a point of the world lies in the image, from its upper left corner."""
        x, y = point
        return (float(x) - self._left) * self._scale, self._image.size[1] - (float(y) - self._bottom) * self._scale

    def line(self, points, width, color):
        """Draw a line through ``points`` [(x, y), ...], ``width`` in units of the world, with round ends."""
        pixels = [self._pixel(p) for p in points]
        thick = max(1, round(width * self._scale))
        self._draw.line(pixels, color, thick, joint="curve")
        if thick > 4:
            for x, y in (pixels[0], pixels[-1]):
                self._disc(x, y, thick / 2, color)

    def circle(self, center, radius, color):
        """Draw a filled circle, ``radius`` in units of the world."""
        self._disc(*self._pixel(center), radius * self._scale, color)

    def _disc(self, x, y, radius, color):
        # Pillow's boxes contain their last pixel.
        radius = max(radius, 1.0)
        self._draw.ellipse((x - radius, y - radius, x + radius - 1, y + radius - 1), color)

    def rectangle(self, x0, y0, x1, y1, color):
        """Draw a filled rectangle between two opposite corners."""
        (ax, ay), (bx, by) = self._pixel((x0, y0)), self._pixel((x1, y1))
        left, right, upper, lower = min(ax, bx), max(ax, bx), min(ay, by), max(ay, by)
        self._draw.rectangle((left, upper, max(left, right - 1), max(upper, lower - 1)), color)

    def caption(self, text):
        """Write ``text`` into the upper left corner, over everything else; it replaces the text before."""
        self._text = str(text)

    def frame(self):
        """Return the picture, (height, width, 3) uint8."""
        from PIL import Image, ImageDraw, ImageFont

        image = self._image
        if self._text:
            image, size = image.copy(), max(10, self.height // 25) * SUPERSAMPLING
            ImageDraw.Draw(image).text((size // 2, size // 2), self._text, "#333333", ImageFont.load_default(size))
        return np.array(image.resize((self.width, self.height), Image.Resampling.LANCZOS))
