"""The templates of ``conf/*/prompts/``: a folder for each prompt, a file for each of its templates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from starpo.agent.prompt import check_template
from starpo.config.prompt import FIELDS
from starpo.errors import UserError


def read_prompts(folders: Iterable[Path]) -> dict[str, dict[str, str]]:
    """All prompts by name, as fields of ``PromptTemplates``.

    A line break at the end of a file is no part of its template.

    Args:
        folders: folders of ``conf/``; a prompt of a later one takes the place of its namesake.

    Raises:
        UserError: a template is missing, is no UTF-8 or cannot be filled in; by file and line.
    """
    found = {}
    for folder in folders:
        for place in sorted(path for path in (folder / "prompts").glob("*") if path.is_dir()):
            shown = place.relative_to(folder.parent.parent)
            templates = {part: _template(place / f"{part}.j2", part, f"{shown}/{part}.j2") for part in FIELDS}
            found[place.name] = {"name": place.name} | templates
    return found


def _template(path: Path, part: str, shown: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        parts = ", ".join(f"{each}.j2" for each in FIELDS)
        raise UserError(f"{shown} is missing: a prompt has {parts} (docs/prompts.md)") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserError(
            f"{shown}, line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"{shown}: {error.strerror}; make it a readable file, or remove the folder") from None
    template = text.removesuffix("\n")
    check_template(template, part, shown)
    return template
