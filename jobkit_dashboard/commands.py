"""`jobkit dashboard`: serves the pages, and makes what opens them.

Invariant: secrets are printed once, where they were asked for, and never on standard output together with data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command, Group
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.times import DurationParam

__all__ = ["TOKENS", "dashboard"]

TOKENS: Final = Shape(
    "dashboard.tokens",
    (
        Field("handle", help="what revoke takes", column="handle"),
        Field("name", help="what it was made for", column="name"),
        Field("roles", "list", get=lambda s: sorted(s.actor.roles), help="what it may do", column="roles"),
        Field("created_at", "time", help="when it was made", column="created"),
        Field("expires_at", "time", help="when it stops working", column="expires"),
    ),
    title="Tokens",
)

_role = click.option(
    "--role", type=click.Choice(["viewer", "operator", "admin"]), default="viewer", show_default=True
)


@click.group(cls=Group, default="serve")
def dashboard() -> None:
    """Serve the web pages; without a verb: serve. On loopback, and only to whom a one-time link lets in."""


@dashboard.command(
    "serve",
    cls=Command,
    examples=[
        ("jobkit dashboard", "On http://127.0.0.1:8778/, opened by the link that it prints."),
        ("jobkit dashboard --read-only --open", "Nothing can be changed; opens the browser."),
        (
            "jobkit dashboard --host 0.0.0.0 --password-file users --behind-tls-proxy --allowed-host jobs.example.org",
            "For others, behind a proxy that speaks TLS.",
        ),
    ],
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to bind; localhost is both of its own.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=8778, show_default=True)
@click.option("--open", "open_", is_flag=True, help="Open the browser.")
@click.option("--root-path", default="", metavar="PATH", help="Where a proxy puts it, such as /admin/jobs.")
@click.option("--read-only", is_flag=True, help="There is no address that changes anything.")
@click.option(
    "--auth", metavar="MODULE:CALLABLE", help="Who sends a request: a callable that gives an Actor or None."
)
@click.option("--password-file", metavar="FILE", help="Lines of name:role:hash; see hash-password.")
@click.option("--trust-proxy-header", metavar="NAME", help="The header in which a proxy names the user.")
@click.option(
    "--trusted-proxies", multiple=True, metavar="NETWORK", help="Networks whose X-Forwarded-* are believed."
)
@_role
@click.option("--allowed-host", multiple=True, metavar="HOST[:PORT]", help="A name that browsers may use.")
@click.option("--behind-tls-proxy", is_flag=True, help="A proxy in front speaks TLS.")
@click.option("--tls-cert", metavar="FILE", help="The certificate, to speak TLS itself.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--api", is_flag=True, help="Answer R/api/v1/ for tokens of `jobkit dashboard token`.")
@click.option(
    "--token-file", metavar="FILE", help="Write the link to this file (0600) instead of the terminal."
)
@click.pass_context
def serve(ctx: click.Context, /, **given: Any) -> None:
    """Serve the dashboard until Ctrl-C."""
    session = session_of(ctx)
    options = _options(given)
    _needs_framework()
    from jobkit_dashboard.serve import bind, dashboard_for, server_for

    core = session.app
    _check(session)
    dash = dashboard_for(core, options)
    sockets = bind(options)
    _tell(session, options, given["token_file"], given["open_"])
    session.endless = True
    server_for(dash, options).run(sockets=sockets)


def _options(given: dict[str, Any]) -> Any:
    from jobkit_dashboard.serve import Standalone, refusal

    options = Standalone(
        host=given["host"],
        port=given["port"],
        root_path=given["root_path"].rstrip("/"),
        read_only=given["read_only"],
        auth=given["auth"],
        password_file=given["password_file"],
        proxy_header=given["trust_proxy_header"],
        trusted_proxies=tuple(given["trusted_proxies"]),
        role=given["role"],
        allowed_hosts=tuple(given["allowed_host"]),
        behind_tls_proxy=given["behind_tls_proxy"],
        certificate=given["tls_cert"],
        key=given["tls_key"],
        api=True if given["api"] else None,
    )
    problem = refusal(options)
    if problem is not None:
        raise CommandError(problem, ExitCode.CONFIG)
    return options


def _needs_framework() -> None:
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        hint = "install it with: pip install 'jobkit-queue[dashboard]'"
        raise CommandError(f"the dashboard needs {error.name}", ExitCode.CONFIG, hint=hint) from None


def _check(session: Session) -> None:
    """Raise NotMigrated now rather than on the first page."""
    from jobkit.storage import migrations

    core = session.app
    core.ready()
    with core.engine.connect() as conn:
        migrations.check(conn, core.tables, core.migrations())


def _tell(session: Session, options: Any, token_file: str | None, browse: bool) -> None:
    """One line on stderr: where it is, with a link that opens it where links do."""
    from jobkit_dashboard.serve import link_url, write_private
    from jobkit_dashboard.signin import new_link
    from jobkit_dashboard.store import Store

    if not options.has_links:
        session.out.note(f"Serving on {options.host}:{options.port}{options.root_path}/")
        return
    url = link_url(options, new_link(Store(session.app)))
    if token_file:
        write_private(Path(token_file), url + "\n")
        session.out.note(f"The link to open is in {token_file}")
    else:
        session.out.note(f"Open {url}")
    if browse:
        click.launch(url)


@dashboard.command(
    "link",
    cls=Command,
    examples=[("jobkit dashboard link", "Another link for the dashboard that runs on this database.")],
)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(1, 65535), default=8778, show_default=True)
@click.option("--root-path", default="", metavar="PATH")
@click.option(
    "--role", type=click.Choice(["viewer", "operator", "admin"]), default="admin", show_default=True
)
@click.pass_context
def link(ctx: click.Context, host: str, port: int, root_path: str, role: str) -> None:
    """Print a new login link. It works once, within ten minutes."""
    from jobkit.hookspecs import Actor
    from jobkit_dashboard.serve import Standalone, link_url
    from jobkit_dashboard.signin import new_link
    from jobkit_dashboard.store import Store

    session = session_of(ctx)
    session.core.ready()
    actor = Actor("local", "local operator", "web", frozenset({role}))
    token = new_link(Store(session.core), actor)
    click.echo(link_url(Standalone(host=host, port=port, root_path=root_path), token))


@dashboard.command(
    "hash-password",
    cls=Command,
    examples=[
        ("jobkit dashboard hash-password ana --role operator >> users", "A line for the password file.")
    ],
)
@click.argument("name")
@_role
@click.pass_context
def hash_password(ctx: click.Context, name: str, role: str) -> None:
    """Ask for a password and print a line for --password-file."""
    from jobkit_dashboard import passwords

    if not name or ":" in name or not name.isprintable() or name.startswith("#"):
        raise CommandError(f"{name!r} cannot be a name: no colon, no control characters", ExitCode.USAGE)
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    click.echo(f"{name}:{role}:{passwords.hash_password(password)}")


@dashboard.group("token", cls=Group, default="list")
def token() -> None:
    """Tokens for R/api/v1/."""


@token.command(
    "create",
    cls=Command,
    examples=[("jobkit dashboard token create ci --role viewer --expires 30d", "For a script.")],
)
@click.argument("name")
@_role
@click.option("--expires", type=DurationParam(), default="30d", show_default=True)
@click.pass_context
def create(ctx: click.Context, name: str, role: str, expires: Any) -> None:
    """Make a token and print it, this once."""
    from jobkit.hookspecs import Actor
    from jobkit_dashboard.store import Store

    session = session_of(ctx)
    session.core.ready()
    actor = Actor(f"token:{name}", name, "api", frozenset({role}))
    click.echo(Store(session.core).make("token", actor, expires, name=name))
    session.out.note("It is not shown again.")


@token.command("list", cls=Command, examples=[("jobkit dashboard token list", "All tokens that work.")])
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List tokens, never their secrets."""
    from jobkit_dashboard.store import Store

    session = session_of(ctx)
    session.out.items(TOKENS, Store(session.core).living("token"), empty="no tokens")


@token.command(
    "revoke",
    cls=Command,
    examples=[("jobkit dashboard token revoke 1a2b3c4d5e6f", "It stops working at once.")],
)
@click.argument("handle")
@click.pass_context
def revoke(ctx: click.Context, handle: str) -> None:
    """End a token, by the handle that `list` shows."""
    from jobkit_dashboard.store import Store

    session = session_of(ctx)
    if not Store(session.core).revoke("token", handle):
        raise CommandError(f"there is no token {handle}", ExitCode.NOT_FOUND)
    session.out.note(f"token {handle} works no more")
