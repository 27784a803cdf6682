# SPDX-License-Identifier: Apache-2.0
"""Objects whose page a notebook shows."""
import html

# A page of its own: its style and script touch nothing of the notebook's. It is light or dark as the browser is.
FRAME = '<iframe srcdoc="{page}" style="width: 100%; height: {height}px; border: 0" title="{title}"></iframe>'


def draw_itself(of, page, height=480):
    """Gives the class `of` to_html(path) and the method that notebooks call; `page` makes the page of an object."""

    def show(self):
        return FRAME.format(page=html.escape(page(self)), height=height, title=html.escape(repr(self)))

    def to_html(self, path):
        """Writes the page to a file; it loads nothing and runs in any browser."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(page(self))

    of._repr_html_ = show
    of.to_html = to_html
