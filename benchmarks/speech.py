"""Throughput of ``relatum train speech``: seconds of sound per second, and where the time goes.

    pip install -e '.[all,bench]'
    python benchmarks/speech.py --data LibriSpeech

Steps of the presets ``cpu`` and ``paper`` on one thread, put together from their parts as the
trainer does it, with windows read from FLAC files and from a tar of the same recordings. About four
minutes on a core that has nothing else to do. Writes ``docs/results/speech_throughput_cpu.md`` and
``.json``; with ``--page`` the page alone, from the JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measure import machine, machine_words, markdown, quartiles, warn_if_busy
from rich.console import Console
from rich.progress import track

from relatum.data.audio import Windows, cut_windows, list_sounds, open_corpus, unit_windows
from relatum.recipes.speech import PredictionStep, TrainSpeech, build_networks, resolve
from relatum.runs import strict_json
from relatum.scores import draw_negatives, look_ahead
from relatum.settings import from_yaml
from relatum.training import build_optimizer

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "speech_throughput_cpu.md"
PRESETS = {"cpu": 20, "paper": 5}
SOURCES = {"flac": "FLAC files", "tar": "a tar of them"}
LOADER, ENCODER, CONTEXT, SCORES = "loader", "encoder", "context", "predictors, scores, loss"
BACK, UPDATE = "backward", "optimiser"
PARTS = (LOADER, ENCODER, CONTEXT, SCORES, BACK, UPDATE)
MOST = 0.1  # of a step: from there on the loader would be felt

Parts = dict[str, float]


class Trainer:
    """Steps of a preset, its parts timed.

    Args:
        name: Of the preset.
        windows: Read in each step, from FLAC or tar.
    """

    def __init__(self, name: str, windows: Windows) -> None:
        text = (ROOT / "configs" / f"speech-{name}.yaml").read_text(encoding="utf-8")
        given = replace(from_yaml(TrainSpeech, text, where=name), data="recordings", device="cpu")
        self.settings, self.windows = resolve(given), windows
        self.networks = build_networks(self.settings)
        self.optimizer = build_optimizer(
            self.settings.optimizer,
            self.networks,
            learning_rate=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
        )
        self.parameters = sum(p.numel() for network in self.networks for p in network.parameters())
        self.generator = torch.Generator().manual_seed(0)

    @property
    def sound(self) -> float:
        """Seconds of sound in a step."""
        return self.settings.batch_size * self.settings.window / self.settings.rate

    def rows(self) -> torch.Tensor:
        """The windows of a step."""
        order = torch.randperm(len(self.windows), generator=self.generator)
        return order[: self.settings.batch_size]

    def check(self) -> None:
        """The loss of a step here is that of the trainer's step, or the benchmark is void."""
        network, s = self.networks.network.eval(), self.settings
        rows = self.rows()
        with torch.no_grad():
            theirs = PredictionStep(
                self.networks, self.windows, s.negatives, s.negatives_from, s.exclude_positive,
                s.normalize,
            )(rows, 5).loss  # fmt: skip
            ours = self.loss(rows, torch.Generator().manual_seed(5), lambda part: None)
        assert torch.equal(ours, theirs), f"{ours} is not the trainer's loss, {theirs}"
        network.train()

    def step(self) -> Parts:
        """One step."""
        parts, last = {}, time.perf_counter()

        def lap(part: str) -> None:
            nonlocal last
            now = time.perf_counter()
            parts[part], last = now - last, now

        loss = self.loss(self.rows(), self.generator, lap)
        torch.autograd.backward(loss)
        lap(BACK)
        self.optimizer.step()
        self.optimizer.zero_grad()
        lap(UPDATE)
        return parts

    def loss(self, rows: torch.Tensor, generator: torch.Generator, lap: Any) -> torch.Tensor:
        """The loss of some windows, as the trainer's step makes it."""
        network, s = self.networks.network, self.settings
        samples = self.windows.read(rows, generator)
        samples = unit_windows(samples) if s.normalize else samples
        lap(LOADER)
        frames = network.encoder(samples)
        lap(ENCODER)
        contexts = network.context(frames)[0]
        lap(CONTEXT)
        predictions = network.predict(contexts)
        drawn = draw_negatives(
            self.windows.speaker[rows], frames.shape[1], predictions[0].shape[1], s.negatives,
            s.negatives_from, generator,
        )  # fmt: skip
        scores = look_ahead(
            self.networks.loss.critic, predictions, frames, drawn,
            exclude_positive=s.exclude_positive,
        )  # fmt: skip
        loss = torch.stack([self.networks.loss.from_scores(each) for each in scores]).sum()
        lap(SCORES)
        return loss


def both_sources(data: Sequence[Path], folder: Path, window: int) -> Iterator[tuple[str, Windows]]:
    """The windows of the same recordings, as files and in a tar."""
    loose, archive = folder / "loose", folder / "sounds.tar"
    loose.mkdir()
    for sound in list_sounds(data)[0]:
        target = loose / f"{sound.id.replace('/', '_')}{Path(str(sound.place)).suffix}"
        source = sound.place.source()
        if isinstance(source, str):
            shutil.copyfile(source, target)
        else:
            target.write_bytes(source.getvalue())
    with tarfile.open(archive, "w") as packed:
        packed.add(loose, "sounds")
    for name, root in (("flac", loose), ("tar", archive)):
        yield name, cut_windows(open_corpus(list_sounds([root])[0], check=False), window)


def measured(data: Sequence[Path], scale: float, console: Console) -> dict[str, Any]:
    """Timed steps of each preset and source; the first is a warm-up and left out."""
    found: dict[str, Any] = {"steps": {}, "presets": {}}
    with tempfile.TemporaryDirectory() as folder:
        for source, windows in both_sources(data, Path(folder), 20480):
            corpus = windows.corpus
            found["data"] = {
                "recordings": len(corpus), "minutes": corpus.seconds / 60, "windows": len(windows)
            }  # fmt: skip
            for name, steps in PRESETS.items():
                trainer = Trainer(name, windows)
                trainer.check()
                turns = range(1 + max(2, round(scale * steps)))
                laps = [trainer.step() for _ in track(turns, f"{name}, {source}", console=console)]
                found["steps"][f"{name}, {source}"] = laps[1:]
                found["presets"][name] = {
                    "sound": trainer.sound, "windows": trainer.settings.batch_size,
                    "parameters": trainer.parameters, "frame_dim": trainer.settings.frame_dim,
                    "predictor": trainer.settings.predictor,
                }  # fmt: skip
    return found


def page(found: Mapping[str, Any]) -> str:
    """The page, from what was measured alone."""
    data = found["data"]
    return "\n".join(
        [
            "# Throughput of training on speech",
            "",
            f"Generated by `python benchmarks/speech.py`. "
            f"{machine_words(found['machine'], found['load'])}",
            "",
            HOW.format(**data),
            "",
            *speed_table(found),
            "",
            *verdict(found),
            "",
            "## Where the time goes",
            "",
            "Medians of the parts of a step, in milliseconds and in percent of their sum.",
            "",
            *profile_table(found["steps"]),
            "",
            "## The loader",
            "",
            "Seconds of a step for reading its windows (opening, seeking, decoding, scaling), and "
            "of the rest. The last column is how many times faster everything else would have "
            "to become before reading took half of the time.",
            "",
            *loader_table(found["steps"]),
            "",
        ]
    )


HOW = """Sizes of the presets (`configs/speech-cpu.yaml`, `configs/speech-paper.yaml`), RPC, 12
look-aheads, 128 negatives an anchor; float32, one thread. A step reads 8 windows of 1.28 s at
random places of {recordings} recordings ({minutes:.1f} minutes, {windows:,} windows), from one
FLAC file each or from one tar of them; nothing is decoded beforehand and nothing kept. The
files are in the page cache of the system after they were written. That a step here has the loss
of the trainer's step is checked before it is timed. The first step is left out.""".replace(
    "\n", " "
)


def speed_table(found: Mapping[str, Any]) -> list[str]:
    rows = []
    for name, laps in found["steps"].items():
        preset, _, source = name.partition(", ")
        sizes = found["presets"][preset]
        low, middle, high = quartiles([sizes["sound"] / sum(each.values()) for each in laps])
        rows.append([
            f"{preset}: {sizes['frame_dim']} channels, {sizes['predictor']}", SOURCES[source],
            f"{sizes['parameters']:,}", f"{middle:.1f}", f"[{low:.1f}, {high:.1f}]",
            f"{sizes['sound'] / middle:.2f}", str(len(laps)),
        ])  # fmt: skip
    head = ["preset", "read from", "parameters", "seconds of sound a second", "quartiles",
            "seconds a step", "steps"]  # fmt: skip
    return markdown(head, rows, words=2)


def share(laps: Sequence[Parts], part: str) -> float:
    """Of a step, as a median."""
    return median(each[part] / sum(each.values()) for each in laps)


def verdict(found: Mapping[str, Any]) -> list[str]:
    """Whether reading is ever felt."""
    shares = {name: share(laps, LOADER) for name, laps in found["steps"].items()}
    worst = max(shares, key=shares.__getitem__)
    met = "met" if shares[worst] < MOST else "**missed**"
    return [
        f"The loader is never the bottleneck: {met} (target: under {MOST:.0%} of a step; the most "
        f"is {shares[worst]:.1%}, {worst})."
    ]


def profile_table(steps: Mapping[str, Sequence[Parts]]) -> list[str]:
    rows = []
    for name, laps in steps.items():
        parts = {part: 1e3 * median(each[part] for each in laps) for part in PARTS}
        whole = sum(parts.values())
        rows.append([name, *(f"{value:,.1f} ({value / whole:.1%})" for value in parts.values())])
    return markdown(["", *PARTS], rows)


def loader_table(steps: Mapping[str, Sequence[Parts]]) -> list[str]:
    rows = []
    for name, laps in steps.items():
        reading = median(each[LOADER] for each in laps)
        rest = median(sum(each.values()) - each[LOADER] for each in laps)
        rows.append([name, f"{reading:.4f}", f"{rest:.3f}", f"{rest / reading:,.0f}"])
    return markdown(["", "reading, s", "rest of the step, s", "times"], rows)


def main() -> None:
    """Measures, writes JSON and page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, nargs="+", help="folders or tars of recordings")
    parser.add_argument("--quick", action="store_true", help="two steps each, nothing written")
    parser.add_argument("--page", action="store_true", help="the page alone, from the JSON")
    options = parser.parse_args()
    console = Console()
    record = PAGE.with_suffix(".json")
    if options.page:
        PAGE.write_text(page(json.loads(record.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    if not options.data:
        parser.error("--data is needed: where the recordings are")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load = warn_if_busy(console)
    found = measured(options.data, 0.0 if options.quick else 1.0, console)
    found |= {"machine": machine(("soundfile", "soxr")), "load": load}
    if options.quick:
        console.print(page(found), markup=False, highlight=False, soft_wrap=True)
        return
    record.write_text(strict_json(found) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(record.read_text(encoding="utf-8"))), encoding="utf-8")
    console.print(f"written: {PAGE}, {record}")


if __name__ == "__main__":
    main()
