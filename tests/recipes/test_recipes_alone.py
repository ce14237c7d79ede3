"""Commands that write one folder refuse to be started several times at once."""

from pathlib import Path

import pytest

from relatum.recipes import certify, embed, export, finetune, probe
from relatum.runs import RunError

RUN = Path("no/run")
COMMANDS = [
    (certify, certify.Certify(RUN)),
    (embed, embed.Embed(run=RUN)),
    (export, export.Export(run=RUN)),
    (finetune, finetune.FineTune(runs=[RUN])),
    (probe, probe.Probe(runs=[RUN])),
]


@pytest.mark.parametrize(("module", "settings"), COMMANDS, ids=lambda each: type(each).__name__)
def test_several_processes_are_refused(monkeypatch, module, settings):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"is for one process, but WORLD_SIZE is 2: .* torchrun"):
        module.main(settings)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises((RunError, ValueError), match=r"no/run"):
        module.main(settings)
