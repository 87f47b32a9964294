"""Kedro's loader of ``conf/``: a folder may extend another, and a file that cannot be read is one message."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from kedro.config import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from starpo.app.kedro_internals import MergingLoader
from starpo.app.parameters import merge
from starpo.app.prompt_files import read_prompts
from starpo.config.kedro_command import EXTENDS
from starpo.config.prompt import PROMPTS
from starpo.errors import UserError

_YAML_REMEDY = (
    "Correct it there: spaces indent, every bracket and quote is closed, and a section names each key once."
)


class ConfigLoader(MergingLoader):
    """``OmegaConfigLoader`` whose errors are a user's mistakes, by file and line.

    The parameters of a folder may begin with ``_extends: paper``: what they leave out, the folder ``paper`` says.
    With the parameters come the prompts of all these folders, under ``PROMPTS``.
    """

    _extended: list[str]
    """Folders behind the one being read, nearest first."""

    def __getitem__(self, key: str) -> dict[str, Any]:
        """All settings of one kind, such as ``parameters``.

        Raises:
            UserError: a file is no valid YAML, two files set the same key, an interpolation leads nowhere, or a
                prompt's template cannot be filled in.
        """
        if key in self.data:  # set by a hook
            return super().__getitem__(key)
        self._extended = []
        try:
            found = super().__getitem__(key)
        except (MissingConfigException, UserError):
            raise  # Kedro asks for kinds that may be missing
        except (yaml.YAMLError, OmegaConfBaseException, ValueError, AttributeError, OSError) as error:
            message = self._mistake(key, error)
            if message is None:
                raise
            raise UserError(message) from error
        folders = [Path(self.conf_source) / env for env in reversed(self._folders())]
        prompts = read_prompts(folders) if key == "parameters" else {}
        return found | ({PROMPTS: prompts} if prompts else {})

    def merged(self, config: dict[str, Any], over: dict[str, Any], key: str, folder: str) -> dict[str, Any]:
        """``over`` the folder that its ``_extends`` names, if it names one, over ``config``."""
        name = over.pop(EXTENDS, None)
        if name is not None:
            self._check_extended(name)
            self._extended.append(name)
            place = str(Path(self.conf_source) / name)
            extended = self.load_and_merge_dir_config(place, self.config_patterns[key], key, set())
            config = self.merged(config, extended, key, place)
        return super().merged(config, over, key, folder)

    def merged_softly(self, config: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
        """``over`` over ``config`` as everywhere: arguments go with the name that they belong to."""
        merged = copy.deepcopy(config)
        merge(merged, over)
        return merged

    def _check_extended(self, name: Any) -> None:
        """Raise ``UserError`` where ``name`` is no folder of ``conf/`` or leads back to one that extends it."""
        conf = Path(self.conf_source)
        folders = {path.name for path in conf.iterdir() if path.is_dir()}
        known = sorted(folders - {self.base_env, self.env or self.default_run_env, *self._extended})
        if name not in known:
            holder = [self.env or self.default_run_env, *self._extended][-1]
            raise UserError(
                f"{conf.name}/{holder}: {EXTENDS} is {name!r}; name another folder of {conf.name}: {', '.join(known)}"
            )

    def _folders(self) -> list[str]:
        """Folders that were read, the one that prevails first."""
        return list(dict.fromkeys((self.env or self.default_run_env, *self._extended, self.base_env)))

    def _mistake(self, key: str, error: Exception) -> str | None:
        """What a person must correct; None where it is no mistake in ``conf/``."""
        conf = Path(self.conf_source)
        for env in self._folders():
            for pattern in self.config_patterns[key]:
                for path in sorted((conf / env).glob(pattern)):
                    if path.suffix in {".yml", ".yaml"} and (found := fault(path)) is not None:
                        return f"{path.relative_to(conf.parent)}{found}"
        if isinstance(error, OmegaConfBaseException):
            return f"{conf.name}/*/{key}*.yml{_interpolation(error)}"
        if str(error).startswith("Duplicate keys found"):
            return f"{error}\nKeep each key in one file of a folder."
        return None


def fault(path: Path) -> str | None:
    """What keeps a YAML file from being read, with the lines it is about; None: nothing.

    Example: ``, line 3: found duplicate key seed`` and the line itself.
    """
    loaded: Any
    try:
        loaded = OmegaConf.load(path)
    except yaml.MarkedYAMLError as error:
        return _marked(path, error)
    except yaml.reader.ReaderError as error:
        line = path.read_text(encoding="utf-8")[: error.position].count("\n") + 1
        return f", line {line}: character #x{error.character:04x}: {error.reason}\nRemove it."
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return f", line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8\nSave the file as UTF-8."
    except OmegaConfBaseException as error:
        return _interpolation(error)
    except OSError as error:
        loaded = error.strerror  # none where the file holds a lone number
    if isinstance(loaded, DictConfig):
        return None
    problem = loaded if isinstance(loaded, str) else "expected keys with values, such as `run: {seed: 0}`"
    return f": {problem}\nCorrect it or remove the file."


def _interpolation(error: OmegaConfBaseException) -> str:
    """What is wrong with a ``${…}``, and the key that holds it."""
    what = str(error.msg or error).partition("\n")[0]
    return f", key {error.full_key}: {what}\nCorrect the ${{…}} there, or write the value itself."


def _marked(path: Path, error: yaml.MarkedYAMLError) -> str:
    """The parser's words, and the lines that it points to."""
    at, began = error.problem_mark or error.context_mark, error.context_mark
    if at is None:
        return f": {error}\n{_YAML_REMEDY}"
    problem = error.problem or error.context
    shown = {at.line}
    if began is not None and began.line != at.line:
        problem = f"{problem} ({error.context} from line {began.line + 1} on)"
        shown.add(began.line)
    lines = path.read_text(encoding="utf-8").splitlines()
    there = [
        number for number in sorted(shown) if number < len(lines) and not path.name.startswith("credentials")
    ]
    quoted = "".join(f"\n  {number + 1:>4} | {lines[number].expandtabs(4)}" for number in there)
    return f", line {at.line + 1}: {problem}{quoted}\n{_YAML_REMEDY}"
