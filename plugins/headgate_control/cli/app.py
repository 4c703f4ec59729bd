"""The command line's root: what comes before a verb, and the verbs."""

from __future__ import annotations

from collections.abc import Callable

import typer

from headgate_control.cli import asking, checking, costs, looking, planning, repairing, running
from headgate_control.cli.session import ErrorsAsText, Json, Root, session

_EPILOG = (
    "Exit codes: 0 done, 1 error, 2 bad input, 3 not found, 4 the stream is in another state, 5 restore refused, "
    "6 storage, 7 request failed, 8 launch failed, 9 stream failed."
)

app = typer.Typer(
    name="headgate",
    cls=ErrorsAsText,
    help="Fault-tolerant PySpark streams: deploy, start, checkpoint, restore.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # else [brackets] in help texts vanish
)


@app.callback()
def before(ctx: typer.Context, root: Root = None, json: Json = False) -> None:
    """Fault-tolerant PySpark streams: deploy, start, checkpoint, restore."""
    session(ctx, root, json)


VERBS: tuple[Callable[..., None], ...] = (
    planning.plan,
    checking.validate,
    running.deploy,
    running.start,
    running.stop,
    running.cancel,
    asking.checkpoint,
    asking.savepoint,
    running.restore,
    running.rescale,
    looking.explain,
    looking.snapshots,
    costs.checkpoints,
    costs.recoveries,
    looking.status,
    looking.history,
    looking.logs,
    running.supervise,
    repairing.repair,
)
for verb in VERBS:
    app.command()(verb)
