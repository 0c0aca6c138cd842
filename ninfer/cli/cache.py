"""`ninfer cache`: look at, verify, thin out and move what a durable tier keeps. Runs without a model or a server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ninfer.api import ConfigError, StoreInfo, TierArchive, TierError
from ninfer.cache.archive_work import copy_contexts, damaged_images, delete_images
from ninfer.cache.stored_contexts import StoredContext, stored_contexts
from ninfer.cli.exit_codes import FAILED, errors_for_people
from ninfer.cli.output import print_table, progress
from ninfer.config.quantities import parse_bytes, parse_duration_s
from ninfer.obs.clock import SystemClock
from ninfer.plugins import Family, PluginCatalog

cache_app = typer.Typer(
    name="cache",
    help="Look at, verify, thin out and move stored contexts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Q = TypeVar("Q", int, float)

PathOption = Annotated[Path, typer.Option("--path", metavar="DIR", help="`path` of a tier.")]
KindOption = Annotated[str, typer.Option(help="Kind of the tier.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ModelOption = Annotated[
    str, typer.Option(metavar="TEXT", help="Only models whose name or store name contains it.")
]
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Contexts, as `ls` names them.")
]


@cache_app.command("ls")
def list_contexts(
    path: PathOption,
    *,
    kind: KindOption = "disk",
    model: ModelOption = "",
    as_json: JsonOption = False,
) -> None:
    """List stored contexts, the latest used first."""
    with errors_for_people():
        archive = _open(path, kind)
        now_s = SystemClock().unix_s()
        found = _contexts(archive, model)
        if as_json:
            data = [_to_data(info, context) for info, contexts in found for context in contexts]
            typer.echo(json.dumps(data, indent=2))
            return
        print_table(
            ("STORE", "MODEL", "IMAGES", "BYTES", "CONTEXTS", "STATE"),
            [
                (
                    info.store_id,
                    info.model_name or "?",
                    f"{info.num_images:,}",
                    _bytes(info.num_bytes),
                    str(len(contexts)),
                    "in use by a server" if info.is_in_use else "idle",
                )
                for info, contexts in found
            ],
        )
        typer.echo()
        print_table(
            (
                "CONTEXT",
                "MODEL",
                "TOKENS",
                "RESUMES AT",
                "BYTES",
                "OF ITS OWN",
                "USES",
                "LAST USE",
                "AGE",
            ),
            [
                (
                    context.context_id,
                    info.model_name or "?",
                    f"{context.num_tokens:,}",
                    f"{context.resume_tokens:,}",
                    _bytes(context.num_bytes),
                    _bytes(context.own_bytes),
                    str(context.num_uses),
                    _age(now_s - context.last_use_unix_s),
                    _age(now_s - context.created_unix_s),
                )
                for info, contexts in found
                for context in contexts
            ],
        )


@cache_app.command("show")
def show_context(
    context_id: Annotated[str, typer.Argument(metavar="ID", help="A context, as `ls` names it.")],
    path: PathOption,
    *,
    kind: KindOption = "disk",
    tokens: Annotated[bool, typer.Option(help="Print the token ids too.")] = False,
) -> None:
    """Show one context as JSON: where it resumes, what it takes, what it shares."""
    with errors_for_people():
        archive = _open(path, kind)
        ((info, (context,)),) = _selected(archive, [context_id], "")
        data = _to_data(info, context)
        data["state_positions_tokens"] = [image.header.end_tokens for image in context.states]
        data["num_pages"] = len(context.pages)
        data["num_shared_pages"] = context.num_shared_pages
        if tokens:
            data["token_ids"] = context.token_ids()
        typer.echo(json.dumps(data, indent=2))


@cache_app.command("verify")
def verify(path: PathOption, *, kind: KindOption = "disk", model: ModelOption = "") -> None:
    """Read everything and compare it with its checksums. Exit status 1 if anything is damaged."""
    with errors_for_people():
        archive = _open(path, kind)
        num_bad = 0
        for info in _stores(archive, model):
            records = list(archive.records(info.store_id))
            with progress(f"verify {info.store_id}", len(records)) as advance:
                bad = list(damaged_images(archive, info.store_id, records, advance))
            for record, message in bad:
                typer.echo(f"  damaged: {record.key.text} ({_bytes(record.num_bytes)}): {message}")
            num_unusable = len(stored_contexts(records).unusable)
            typer.echo(
                f"{info.store_id} {info.model_name or '?'}: {len(records):,} images, {len(bad)} damaged, "
                f"{num_unusable} of no use (`gc` removes them)"
            )
            num_bad += len(bad)
        if num_bad:
            raise typer.Exit(FAILED)


@cache_app.command("gc")
def collect_garbage(
    path: PathOption,
    *,
    kind: KindOption = "disk",
    model: ModelOption = "",
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help='Also contexts not used for so long, as "7d".')
    ] = "",
    keep: Annotated[
        str, typer.Option(metavar="BYTES", help='Of each store, keep the latest used, as "10GiB".')
    ] = "",
    damaged: Annotated[bool, typer.Option(help="Also verify, and remove what is damaged.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only say what would go.")] = False,
) -> None:
    """Remove images of no use, and contexts that are old, too much or damaged. Needs stores that no server has open."""
    with errors_for_people():
        max_age_s = _quantity("--older-than", older_than, parse_duration_s)
        keep_bytes = _quantity("--keep", keep, parse_bytes)
        now_s = SystemClock().unix_s()
        archive = _open(path, kind)
        for info in _stores(archive, model):
            records = list(archive.records(info.store_id))
            bad = set()
            if damaged:
                with progress(f"verify {info.store_id}", len(records)) as advance:
                    found = damaged_images(archive, info.store_id, records, advance)
                    bad = {record.key for record, _ in found}
            kept = stored_contexts([record for record in records if record.key not in bad])
            going = [
                context
                for context in kept.contexts
                if max_age_s is not None and now_s - context.last_use_unix_s > max_age_s
            ]
            if keep_bytes is not None:
                going += _beyond(
                    [context for context in kept.contexts if context not in going], keep_bytes
                )
            needed = {i.record.key for c in kept.contexts if c not in going for i in c.images}
            gone = {image.record.key for context in going for image in context.images} - needed
            keys = [*bad, *kept.unusable, *gone]
            sizes = {record.key: record.num_bytes + len(record.header) for record in records}
            num_bytes = sum(sizes[key] for key in keys)
            if not dry_run:
                delete_images(archive, info.store_id, keys)
            typer.echo(
                f"{info.store_id} {info.model_name or '?'}: {'would remove' if dry_run else 'removed'} "
                f"{len(keys):,} images, {_bytes(num_bytes)}: {len(going)} contexts, {len(bad)} damaged "
                f"and {len(kept.unusable)} useless images"
            )
        archive.close()


@cache_app.command("export")
def export_contexts(
    ids: IdsArgument = None,
    *,
    path: PathOption,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Directory, made if it is missing.")
    ],
    kind: KindOption = "disk",
    model: ModelOption = "",
) -> None:
    """Copy contexts (all without ID) into a directory that another machine imports, or uses as a tier as it is."""
    with errors_for_people():
        source = _open(path, kind)
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy(source, _open(to, kind), ids, model, verb="exported")


@cache_app.command("import")
def import_contexts(
    ids: IdsArgument = None,
    *,
    path: PathOption,
    source: Annotated[
        Path, typer.Option("--from", metavar="DIR", help="Directory written by `export`.")
    ],
    kind: KindOption = "disk",
    model: ModelOption = "",
) -> None:
    """Copy contexts (all without ID) from an exported directory into a tier that no server has open.

    A server with the same model, tokenizer, dtypes and drafter finds them when it starts. It keeps what fits
    under its `capacity`, the latest used first.
    """
    with errors_for_people():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy(_open(source, kind), _open(path, kind), ids, model, verb="imported")


def _copy(
    source: TierArchive, target: TierArchive, ids: list[str] | None, model: str, *, verb: str
) -> None:
    for info, contexts in _selected(source, ids or [], model):
        images = {image.record.key: image.record for c in contexts for image in c.images}
        with progress(f"{verb} {info.store_id}", len(images)) as advance:
            copied = copy_contexts(source, target, info, list(images.values()), advance)
        for message in copied.problems:
            typer.echo(f"  not copied: {message}", err=True)
        typer.echo(
            f"{info.store_id} {info.model_name or '?'}: {verb} {len(contexts)} contexts, "
            f"{copied.num_images:,} images, {_bytes(copied.num_bytes)}"
        )
        if copied.problems:
            target.close()
            raise typer.Exit(FAILED)
    source.close()
    target.close()


def _open(path: Path, kind: str) -> TierArchive:
    catalog = PluginCatalog.discover()
    provider, _ = catalog.tier(kind)
    if provider.open_archive is None:
        able = [
            name
            for name in catalog.kinds(Family.TIER)
            if catalog.tier(name)[0].open_archive is not None
        ]
        raise ConfigError(
            f"tiers of kind {kind!r} keep nothing that can be looked at offline; these do: {', '.join(able)}"
        )
    return provider.open_archive(path)


def _stores(archive: TierArchive, model: str) -> list[StoreInfo]:
    stores = archive.stores()
    found = [info for info in stores if model in info.model_name or model in info.store_id]
    if model and not found:
        names = ", ".join(f"{info.model_name or '?'} ({info.store_id})" for info in stores)
        raise ConfigError(f"--model {model!r} names no store; there is {names or 'none'}")
    return found


def _contexts(archive: TierArchive, model: str) -> list[tuple[StoreInfo, list[StoredContext]]]:
    return [
        (info, list(stored_contexts(archive.records(info.store_id)).contexts))
        for info in _stores(archive, model)
    ]


def _selected(
    archive: TierArchive, ids: list[str], model: str
) -> list[tuple[StoreInfo, list[StoredContext]]]:
    found = _contexts(archive, model)
    if not ids:
        return found
    chosen = []
    left = set(ids)
    for info, contexts in found:
        named = [c for c in contexts if any(c.context_id.startswith(name) for name in ids)]
        left -= {name for name in ids for c in named if c.context_id.startswith(name)}
        if named:
            chosen.append((info, named))
    if left:
        raise TierError(
            f"there is no context {', '.join(sorted(left))}; `ninfer cache ls` lists them"
        )
    return chosen


def _beyond(contexts: list[StoredContext], keep_bytes: int) -> list[StoredContext]:
    """Return the contexts that no longer fit, the latest used fitting first; shared pages are counted once."""
    seen = set()
    for number, context in enumerate(contexts):
        for image in context.images:
            if image.record.key not in seen:
                seen.add(image.record.key)
                keep_bytes -= image.num_bytes
        if keep_bytes < 0:
            return contexts[number:]
    return []


def _quantity(flag: str, text: str, parse: Callable[[object], Q]) -> Q | None:
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from None


def _to_data(info: StoreInfo, context: StoredContext) -> dict[str, object]:
    return {
        "context": context.context_id,
        "store": info.store_id,
        "model": info.model_name,
        "num_tokens": context.num_tokens,
        "resume_tokens": context.resume_tokens,
        "num_bytes": context.num_bytes,
        "own_bytes": context.own_bytes,
        "num_uses": context.num_uses,
        "created_unix_s": context.created_unix_s,
        "last_use_unix_s": context.last_use_unix_s,
        "has_salt": bool(context.salt),
    }


def _bytes(num_bytes: int) -> str:
    amount = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f}{unit} ago"
    return f"{max(seconds, 0):.0f}s ago"
