"""What a run was computed on, and that a continued run says where it changed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import torch
from builders import machine

from starpo.store.machine import LIBRARIES, Machine, this_machine
from starpo.store.runs import continued, new_record, read_record, write_record

PARAMETERS = {"run": {"seed": 0, "iterations": 10}}
TELL = "from starpo.store.machine import this_machine; print(this_machine().model_dump_json())"


def of_another_process(**environment: str) -> Machine:
    """This machine as a process sees it whose libraries are set otherwise."""
    told = subprocess.run(
        [sys.executable, "-c", TELL],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return Machine.model_validate_json(told.stdout)


def test_the_record_names_what_rounds_numbers() -> None:
    here = this_machine()
    assert here.capability == torch.backends.cpu.get_cpu_capability()
    assert here.threads == torch.get_num_threads()
    assert set(here.libraries) == set(LIBRARIES), "all are installed, vLLM under either name"
    assert here.libraries["torch"] == torch.__version__
    assert here.processor and here.capability in here.kind


def test_an_equal_process_is_the_same_machine_and_another_instruction_set_is_not() -> None:
    here = of_another_process()
    other = of_another_process(ATEN_CPU_CAPABILITY="default")
    assert here == of_another_process() and here.differences(here) == []
    assert here.differences(other) == [f"capability {here.capability} → DEFAULT"]


def test_differences_name_libraries_and_gpus() -> None:
    other = machine(gpu="H1", libraries={"torch": "2.1", "vllm": "1"})
    assert machine().differences(other) == ["GPU none → H1", "torch 2.0 → 2.1", "vllm none → 1"]


def test_a_run_continued_elsewhere_says_so_and_keeps_both(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    record = new_record("lake", "train_starpo_s", PARAMETERS, machines=(machine(),))
    record = record.model_copy(update={"state": "killed"})
    other = machine(processor="Abacus 2", capability="AVX512")
    with caplog.at_level(logging.WARNING):
        moved = continued(tmp_path, record, PARAMETERS, other)
    (line,) = caplog.messages
    assert line == (
        "run 'lake' goes on on another machine (processor Abacus 1 → Abacus 2, capability AVX2 → AVX512): "
        "equal bytes are not promised any more"
    )
    write_record(tmp_path, moved)
    assert read_record(tmp_path, "lake").machines == (machine(), other)


def test_a_run_continued_at_home_or_with_nothing_left_to_do_says_nothing(
    tmp_path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = new_record("lake", "train_starpo_s", PARAMETERS, machines=(machine(),))
    assert continued(tmp_path, record, PARAMETERS, machine()).machines == (machine(),)
    finished = record.model_copy(update={"state": "finished"})
    assert continued(tmp_path, finished, PARAMETERS, machine(threads=2)).machines == (machine(),)
    assert not caplog.messages
    longer = {"run": PARAMETERS["run"] | {"iterations": 20}}
    assert len(continued(tmp_path, finished, longer, machine(threads=2)).machines) == 2
