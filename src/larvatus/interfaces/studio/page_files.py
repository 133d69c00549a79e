"""The page itself: plain files beside this one, and plotly from its installed package. Nothing is built or fetched.

    add_page(app)         # /studio/ is index.html, /studio/plotly.min.js plotly

A browser asks each time whether a file has changed, so that a new version of Larvatus is seen at once.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from larvatus.core.errors import UsageError
from larvatus.interfaces.studio.guard import POLICY

PAGE = Path(__file__).parent / "page"
PLOTLY = "plotly.min.js"


class Fresh(StaticFiles):
    """Files that a browser may keep, and asks about before it uses them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = POLICY
        return response


def plotly_folder() -> Path:
    """Where the installed package keeps its script."""
    spec = find_spec("plotly")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(location) / "package_data" / PLOTLY).is_file():
            return Path(location) / "package_data"
    raise UsageError("the studio draws with plotly: pip install 'larvatus[studio]'")


def add_page(app: Starlette) -> None:
    plotly = Fresh(directory=plotly_folder())

    async def script(request: Request) -> Response:
        return await plotly.get_response(PLOTLY, request.scope)

    async def home(request: Request) -> Response:
        asked = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/studio/{asked}", status_code=307)

    app.add_route(f"/studio/{PLOTLY}", script, methods=["GET"], include_in_schema=False)
    app.add_route("/", home, methods=["GET"], include_in_schema=False)
    app.mount("/studio", Fresh(directory=PAGE, html=True), name="studio")
