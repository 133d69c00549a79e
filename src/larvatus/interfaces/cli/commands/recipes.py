"""`larvatus recipes`: the published systems. `larvatus recipes show bert` prints the file itself.

larvatus recipes show bert --size tiny --set model.layers=6 > mine.toml
"""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

from larvatus.core.tables import Table
from larvatus.interfaces.cli.options import Json, Set, Size
from larvatus.interfaces.cli.tables import show_part
from larvatus.models.recipes import read_recipe, recipe_names, recipe_table, recipe_text, recipe_toml

app = typer.Typer(help="List the published systems, or show one as TOML.")


@app.callback(invoke_without_command=True)
def list_recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the recipes."""
    if context.invoked_subcommand is not None:
        return
    recipes = [read_recipe(name) for name in recipe_names()]
    if as_json:
        print(json.dumps([recipe_table(recipe) for recipe in recipes]))
        return
    rows = []
    for recipe in recipes:
        plain = recipe_table(recipe)
        objectives = " + ".join(objective["type"] for objective in plain["objectives"])
        corruption = plain["corruption"]["type"] if plain["corruption"] else "none"
        rows.append((recipe.name, recipe.about, plain["packing"]["type"], corruption, objectives))
    show_part(Console(), Table(("recipe", "what it is", "packing", "corruption", "objectives"), rows, left=5))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A recipe's name, or a TOML file.")],
    size: Size = None,
    settings: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole recipe, defaults included, as JSON.")] = False,
) -> None:
    """Show one recipe as TOML that pretrain takes: the file as written, or with --size or --set what it comes to."""
    recipe = read_recipe(name, size=size, settings=settings or [])
    if as_json:
        print(json.dumps(recipe_table(recipe), indent=2))
        return
    whole = bool(size or settings) or name.endswith(".toml")
    console = Console()
    text = (recipe_toml(recipe) if whole else recipe_text(name)).rstrip()
    if console.is_terminal:
        console.print(Syntax(text, "toml", background_color="default"))
    else:
        print(text)
