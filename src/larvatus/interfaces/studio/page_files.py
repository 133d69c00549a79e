"""The page: plain files in `page/`, and plotly from its installed package. Nothing is built or downloaded.

    add_page(app)         # /studio/ is index.html, /studio/plotly.min.js plotly

The browser revalidates every file, so that a new version of Larvatus shows at once.
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
from larvatus.interfaces.studio.middleware import POLICY

PAGE = Path(__file__).parent / "page"
PLOTLY = "plotly.min.js"


class RevalidatedFiles(StaticFiles):
    """Files that a browser may cache, and revalidates before it uses them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = POLICY
        return response


def plotly_folder() -> Path:
    """Folder of plotly's script in the installed package."""
    spec = find_spec("plotly")
    for location in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(location) / "package_data" / PLOTLY).is_file():
            return Path(location) / "package_data"
    raise UsageError("the studio draws with plotly: pip install 'larvatus[studio]'")


def add_page(app: Starlette) -> None:
    plotly = RevalidatedFiles(directory=plotly_folder())

    async def script(request: Request) -> Response:
        return await plotly.get_response(PLOTLY, request.scope)

    async def home(request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/studio/{query}", status_code=307)

    app.add_route(f"/studio/{PLOTLY}", script, methods=["GET"], include_in_schema=False)
    app.add_route("/", home, methods=["GET"], include_in_schema=False)
    app.mount("/studio", RevalidatedFiles(directory=PAGE, html=True), name="studio")
