"""A report as PDF: A4 pages from the HTML page and its print style sheet."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.parse import quote

import matplotlib

from slowlight.errors import UserError

NEEDED = (
    "the PDF needs WeasyPrint and the Pango library; install them with "
    "`pip install weasyprint` and `apt-get install libpango-1.0-0 libpangoft2-1.0-0 "
    "libharfbuzz-subset0`"
)
# The figures use matplotlib's font, so that pages are equal on all machines.
FONTS = {"normal": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf"}


def _fonts() -> str:
    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    faces = [
        f'@font-face {{ font-family: "Report"; font-weight: {weight}; '
        f'src: url("file://{quote(str(folder / name))}"); }}'
        for weight, name in FONTS.items()
    ]
    sans = 'font-family: "Report", sans-serif;'
    return "\n".join([*faces, f"@page {{ {sans} }} body {{ {sans} }}"])


def _with_images(page: str) -> str:
    """Returns the page with its figures as images, so that the style sheet ignores their elements.

    The images remain vectors. This reduces the time for fifty figures from a minute to 20 s.
    """

    def image(found: re.Match[str]) -> str:
        label = re.search(r'aria-label="([^"]*)"', found[1])
        style = re.search(r'style="([^"]*)"', found[1])
        kept = base64.b64encode(found[0].encode()).decode()
        return (
            f'<img alt="{label[1] if label else ""}" style="{style[1] if style else ""}" '
            f'src="data:image/svg+xml;base64,{kept}">'
        )

    return re.sub(r"<svg([^>]*)>.*?</svg>", image, page, flags=re.DOTALL)


def write(page: str, path: Path) -> None:
    """Writes the PDF of a page; equal pages give equal bytes.

    If WeasyPrint or a library is missing, raises `UserError` with the packages to install.
    """
    try:
        # The import loads WeasyPrint's libraries.
        import weasyprint
        from weasyprint.text.fonts import FontConfiguration
    except (ImportError, OSError) as error:
        raise UserError(f"{NEEDED} ({str(error).splitlines()[0]})") from error
    config = FontConfiguration()
    sheet = weasyprint.CSS(string=_fonts(), font_config=config)
    document = weasyprint.HTML(string=_with_images(page))
    document.write_pdf(path, stylesheets=[sheet], font_config=config, pdf_identifier=b"slowlight")
