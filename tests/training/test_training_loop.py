"""The loop: order, accumulation, checkpoints, and stopping on a loss that is not finite."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from relatum.runs import Run, RunError
from relatum.training import (
    Monitor,
    NonFiniteLoss,
    Plan,
    StepOutput,
    TrainingState,
    build_optimizer,
    load_checkpoint,
    save_checkpoint,
    train,
)
from relatum.training.loop import stream_seed


def plan(**changes):
    settings = {"rows": 23, "batch_size": 4, "steps": 12, "learning_rate": 0.1, "warmup_steps": 2}
    return Plan(**{**settings, "seed": 0, "log_every": 3, "checkpoint_every": 5, **changes})


class Regression:
    """A step whose loss is known: squared error of a linear map, without other randomness."""

    def __init__(self, poison=None):
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1).double()
        self.x = torch.randn(23, 3, dtype=torch.float64)
        self.seen, self.finished, self.poison = [], 0, poison

    def __call__(self, rows, seed):
        self.seen.append((rows.tolist(), seed))
        loss = self.model(self.x[rows]).square().mean()
        if self.poison == len(self.seen) - 1:
            loss = loss * math.nan
        return StepOutput(loss, lambda: {"mean positive score": 1.5}, dict, self._finish)

    def _finish(self):
        self.finished += 1

    def state(self):
        optimizer = build_optimizer("sgd", [self.model], learning_rate=0.1, weight_decay=0.0)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        return TrainingState({"model": self.model}, optimizer, scaler)


def run_in(folder):
    return Run.create(folder, "a: 1\n")


def go(step, state, the_plan, run):
    with Monitor(run, the_plan.steps) as monitor:
        train(step, state, the_plan, run, monitor)


def test_every_epoch_is_another_order_and_every_run_the_same():
    orders = [plan().order(epoch).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(23)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert orders == [plan().order(epoch).tolist() for epoch in range(3)]
    assert orders[0] != plan(seed=1).order(0).tolist()


def test_batches_of_an_epoch_are_disjoint_and_draws_differ():
    steps = plan().steps_per_epoch
    assert steps == 5
    batches = [batch for step in range(2 * steps) for batch in plan().batches(step)]
    first = [row for rows, _ in batches[:steps] for row in rows.tolist()]
    assert len(set(first)) == len(first) == 20
    assert len({seed for _, seed in batches}) == 2 * steps


def test_all_rows_are_used_over_a_few_epochs():
    used = {r for step in range(4 * 5) for rows, _ in plan().batches(step) for r in rows.tolist()}
    assert used == set(range(23))


def test_a_set_smaller_than_a_step_is_refused():
    with pytest.raises(
        ValueError, match="23 rows do not fill one step of batch_size 8 x accumulate_steps 3; use"
    ):
        plan(batch_size=8, accumulate_steps=3)
    with pytest.raises(ValueError, match="23 rows do not fill one step of batch_size 24; use a"):
        plan(batch_size=24)
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        plan(steps=0)


def test_seeds_of_streams_do_not_collide():
    seeds = {stream_seed(s, stream, i) for s in range(5) for stream in range(3) for i in range(50)}
    assert len(seeds) == 5 * 3 * 50


def test_accumulation_is_the_gradient_of_the_mean_of_both_batches(tmp_path):
    step = Regression()
    start = step.model.weight.detach().clone(), step.model.bias.detach().clone()
    state, the_plan = step.state(), plan(accumulate_steps=2, steps=1, warmup_steps=0)
    go(step, state, the_plan, run_in(tmp_path / "run"))
    weight, bias = (tensor.clone().requires_grad_() for tensor in start)
    losses = [(step.x[rows] @ weight.T + bias).square().mean() for rows, _ in the_plan.batches(0)]
    (sum(losses) / 2).backward()
    torch.testing.assert_close(step.model.weight.detach(), start[0] - 0.1 * weight.grad)
    torch.testing.assert_close(step.model.bias.detach(), start[1] - 0.1 * bias.grad)
    assert (len(step.seen), step.finished, state.step) == (2, 2, 1)


def test_gradient_is_clipped_to_its_norm(tmp_path):
    step = Regression()
    start = nn.utils.parameters_to_vector(step.model.parameters()).detach()
    the_plan = plan(steps=1, warmup_steps=0, gradient_clip=1e-3)
    go(step, step.state(), the_plan, run_in(tmp_path / "run"))
    moved = nn.utils.parameters_to_vector(step.model.parameters()).detach() - start
    assert float(moved.norm()) == pytest.approx(0.1 * 1e-3, rel=1e-4)


@pytest.mark.parametrize("stop", [1, 5, 7, 12])
def test_stopped_and_continued_equals_uninterrupted(tmp_path, stop):
    whole = Regression()
    go(whole, whole.state(), plan(), run_in(tmp_path / "whole"))

    first = Regression()
    halves = first.state()
    run = run_in(tmp_path / "halves")
    # The same schedule, left after `stop` steps by an interrupt inside the next one.
    original = first.__call__

    class Interrupted(Exception):
        pass

    def until_stop(rows, seed):
        if halves.step == stop:
            raise Interrupted
        return original(rows, seed)

    if stop < 12:
        with pytest.raises(Interrupted):
            go(until_stop, halves, plan(checkpoint_every=1), run)
    else:
        go(first, halves, plan(checkpoint_every=1), run)
    second = Regression()
    nn.init.zeros_(second.model.weight)  # everything must come from the checkpoint
    state = second.state()
    state.load_state_dict(load_checkpoint(run.checkpoint))
    assert state.step == stop
    go(second, state, plan(), run)
    assert torch.equal(whole.model.weight, second.model.weight)
    assert torch.equal(whole.model.bias, second.model.bias)


def test_rates_and_metrics_are_those_of_the_steps(tmp_path):
    step, run = Regression(), run_in(tmp_path / "run")
    go(step, step.state(), plan(steps=10), run)
    lines = run.metrics()
    assert [line["step"] for line in lines] == [3, 6, 9, 10]
    assert [line["epoch"] for line in lines] == pytest.approx([0.6, 1.2, 1.8, 2.0])
    # Line "step 3" is the step number 2, which is the first after two steps of warm-up.
    assert lines[0]["learning_rate"] == pytest.approx(0.1)
    assert lines[0]["pairs_per_second"] > 0


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    step, run = Regression(poison=7), run_in(tmp_path / "run")
    state = step.state()
    with pytest.raises(NonFiniteLoss, match=r"not finite at step 7 \(loss nan, mean positive") as e:
        go(step, state, plan(), run)
    assert str(run.checkpoint) in str(e.value)
    assert (e.value.step, e.value.terms["mean positive score"]) == (7, 1.5)
    saved = load_checkpoint(run.checkpoint)
    assert saved["step"] == 5
    assert bool(torch.isfinite(saved["modules"]["model"]["weight"]).all())
    assert step.finished == state.step == 7


def test_a_gradient_that_is_not_finite_stops_before_the_update(tmp_path):
    step = Regression()

    def root(rows, seed):
        # sqrt has infinite slope at 0: the loss is finite, the gradient is not.
        value = (step.model(step.x[rows]) * 0).square().sum().sqrt() + step.model.bias.sum() * 0
        return StepOutput(value, dict, dict, lambda: None)

    before = step.model.weight.detach().clone()
    with pytest.raises(NonFiniteLoss, match="the gradient is not finite at step 0"):
        go(root, step.state(), plan(), run_in(tmp_path / "run"))
    assert torch.equal(step.model.weight, before)


def test_a_bad_state_is_not_saved(tmp_path):
    step = Regression()
    state, path = step.state(), tmp_path / "last.pt"
    save_checkpoint(path, state)
    good = path.read_bytes()
    with torch.no_grad():
        step.model.bias.fill_(math.inf)
    with pytest.raises(FloatingPointError, match=r"model\.bias is not finite at step 0"):
        save_checkpoint(path, state)
    assert path.read_bytes() == good


def test_damaged_and_foreign_checkpoints_are_named(tmp_path):
    with pytest.raises(RunError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    damaged = tmp_path / "damaged.pt"
    save_checkpoint(damaged, Regression().state())
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(RunError, match=r"damaged\.pt is damaged or is no checkpoint; put back"):
        load_checkpoint(damaged)
    torch.save({"format": 1, "odd": torch.nn.Linear(1, 1)}, damaged)
    with pytest.raises(RunError, match=r"damaged\.pt is damaged .* plain tensors refuses it\)$"):
        load_checkpoint(damaged)
    torch.save({"format": 1, "step": 3}, damaged)
    with pytest.raises(RunError, match="it lacks modules, optimizer, scaler, seconds"):
        load_checkpoint(damaged)
    foreign = tmp_path / "foreign.pt"
    torch.save({"weights": torch.ones(1)}, foreign)
    with pytest.raises(RunError, match=r"foreign\.pt is not a checkpoint of format 1"):
        load_checkpoint(foreign)


def test_layers_with_their_own_randomness_are_keyed_by_the_step(tmp_path):
    draws = []

    def noisy(rows, seed):
        draws.append(torch.rand(()).item())
        return Regression.__call__(holder, rows, seed)

    holder = Regression()
    outside = torch.get_rng_state()
    go(noisy, holder.state(), plan(steps=3), run_in(tmp_path / "one"))
    assert torch.equal(torch.get_rng_state(), outside)  # the caller's generator is left alone
    first, draws[:] = list(draws), []
    holder = Regression()
    torch.rand(17)
    go(noisy, holder.state(), plan(steps=3), run_in(tmp_path / "two"))
    assert draws == first
    assert len(np.unique(first)) == 3
