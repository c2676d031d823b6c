"""RLDF: which steps are replayed, in which states, and the authors' recorded losses and gradients."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.golden_data import golden, golden_model
from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import RLDF, Experience, RLDFSettings
from unmask.algorithms.rldf import CleanStateObjective, choose_steps
from unmask.credit import floored_advantage
from unmask.decoding import Decoding, Rollout
from unmask.models import Denoiser, load_model
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay

DYNAMIC = Decoding(order="dynamic", length=8, block=4, threshold=0.35)


def collect(
    make_model: Callable, settings: RLDFSettings, objective: ObjectiveSettings | None = None
) -> tuple[RLDF, Experience, FixedActor]:
    algorithm = RLDF(settings, objective or ObjectiveSettings())
    actor = FixedActor(make_model(), DYNAMIC, parity_reward)
    return algorithm, algorithm.collect(make_prompts(4, 5, 8, pad=2), actor), actor


def steps_of(rollout: Rollout) -> Tensor:
    """(B,) how many steps each response took."""
    return rollout.reveal_step.amax(-1) + 1


def surprise(rollout: Rollout, row: int) -> list[float]:
    """P_t of one response, by its definition."""
    steps = int(steps_of(rollout)[row])
    return [float(-rollout.logprob[row][rollout.reveal_step[row] == t].mean()) for t in range(steps)]


def test_temperature_zero_takes_the_least_certain_steps_and_infinity_all_alike(make_model: Callable) -> None:
    _, experience, _ = collect(make_model, RLDFSettings())
    rollout = experience.rollout
    chosen = choose_steps(rollout, experience.key, 2, 0.0)
    for row in range(len(chosen)):
        uncertain = torch.tensor(surprise(rollout, row)).argsort(descending=True, stable=True)
        assert chosen[row].nonzero().flatten().tolist() == sorted(uncertain[:2].tolist())
    # τ → ∞: every step of a response equally often, over many keys
    row = int(steps_of(rollout).argmax())
    steps = int(steps_of(rollout)[row])
    many = rollout.take(torch.full((4000,), row))
    keys = torch.arange(4000)
    share = choose_steps(many, keys, 2, float("inf")).double().mean(0)[:steps]
    torch.testing.assert_close(share, torch.full((steps,), 2 / steps, dtype=torch.float64), rtol=0, atol=0.03)


def test_steps_are_drawn_without_replacement_from_the_softmax(make_model: Callable) -> None:
    """The probability of each ordered-away pair, by enumeration of the two draws."""
    _, experience, _ = collect(make_model, RLDFSettings())
    rollout = experience.rollout
    row = int(steps_of(rollout).argmax())
    weight = (torch.tensor(surprise(rollout, row), dtype=torch.float64) / 0.5).softmax(-1)
    many = rollout.take(torch.full((4000,), row))
    chosen = choose_steps(many, torch.arange(4000), 2, 0.5)[:, : len(weight)]
    expected = torch.zeros(len(weight), len(weight), dtype=torch.float64)
    for first in range(len(weight)):
        for second in range(len(weight)):
            if first != second:
                expected[first, second] = weight[first] * weight[second] / (1 - weight[first])
    found = torch.einsum("bi,bj->ij", chosen.double(), chosen.double()) / 4000
    found.fill_diagonal_(0)
    torch.testing.assert_close(found, expected + expected.T, rtol=0, atol=0.035)


def test_a_response_with_fewer_steps_than_k_has_all_replayed(make_model: Callable) -> None:
    _, experience, _ = collect(make_model, RLDFSettings())
    chosen = choose_steps(experience.rollout, experience.key, 16, 1.0)
    assert chosen.sum(-1).tolist() == steps_of(experience.rollout).tolist()


@pytest.mark.parametrize("target", ["clean_state", "next_state"])
def test_states_are_those_of_the_rollout_and_only_mixed_groups_are_replayed(make_model: Callable, target: str) -> None:
    algorithm, experience, actor = collect(make_model, RLDFSettings(steps=3, target=target))
    experience = replace(experience, reward=experience.reward.where(experience.rollout.group != 0, 1.0))
    (plan,) = algorithm.replay(experience, actor, 1)
    states, rollout = plan.states, experience.rollout
    chosen = choose_steps(rollout, experience.key, 3, 1.0)
    mixed = [g for g in range(4) if len(set(experience.reward[rollout.group == g].tolist())) == 2]
    rows = [row for row in range(len(chosen)) if rollout.group[row] in mixed]
    assert 0 not in mixed and rows
    assert states.asked == int(chosen[rows].sum())
    seen = set()
    for state, row, position, source in zip(
        states.state.tolist(), states.row.tolist(), states.position.tolist(), states.source.tolist(), strict=True
    ):
        step = [(r, t) for r in rows for t in chosen[r].nonzero().flatten().tolist()][source]
        assert step[0] == row
        before = rollout.reveal_step[row] < step[1]
        assert torch.equal(states.visible[state], before)
        when = int(rollout.reveal_step[row, position])
        assert when == step[1] if target == "next_state" else when >= step[1]
        seen.add((row, step[1], position))
    expected = {
        (row, t, position)
        for row in rows
        for t in chosen[row].nonzero().flatten().tolist()
        for position in range(8)
        if (
            rollout.reveal_step[row, position] >= t
            if target == "clean_state"
            else rollout.reveal_step[row, position] == t
        )
    }
    assert seen == expected


def plain_loss(algorithm: RLDF, experience: Experience, actor: FixedActor, old: Tensor | None) -> Tensor:
    """Equation 10 or 13 with token clipping, response by response and state by state."""
    settings, rollout, model = algorithm.settings, experience.rollout, actor.model
    chosen = choose_steps(rollout, experience.key, settings.steps, settings.step_temperature)
    by_rank: dict[int, list[Tensor]] = {}
    by_response = []
    for row in range(len(chosen)):
        if experience.reward[rollout.group == rollout.group[row]].unique().numel() == 1:
            continue
        per_state = []
        for rank, step in enumerate(chosen[row].nonzero().flatten().tolist()):
            when = rollout.reveal_step[row]
            ids = torch.where(when < step, rollout.response_ids[row], model.mask_token_id)
            mask = torch.cat([rollout.prompt_mask[row], torch.ones(8, dtype=torch.bool)])
            logits = model(torch.cat([rollout.prompt_ids[row], ids])[None], mask[None]).logits[0, -8:]
            logprob = logits.log_softmax(-1).gather(-1, rollout.response_ids[row].unsqueeze(-1)).squeeze(-1)
            kept = (when >= step) & (logprob.detach().exp() >= settings.threshold)
            if settings.keep_revealed:
                kept |= when == step
            terms = -logprob[kept] * experience.credit[row]
            per_state.append(terms.mean() if kept.any() else terms.sum())
            by_rank.setdefault(rank, []).append(terms)
        by_response.append(torch.stack(per_state).mean())
    if settings.normalization == "sample":
        return torch.stack(by_response).mean()
    return torch.stack([torch.cat(terms).sum() / max(1, len(torch.cat(terms))) for terms in by_rank.values()]).sum() / (
        settings.steps
    )


@pytest.mark.parametrize("normalization", ["sample", "token"])
@pytest.mark.parametrize("keep_revealed", [False, True])
@pytest.mark.parametrize("batch_tokens", [30, 10**6])
def test_loss_and_gradient_are_the_equations(
    make_model: Callable, normalization: str, keep_revealed: bool, batch_tokens: int
) -> None:
    settings = RLDFSettings(steps=2, normalization=normalization, keep_revealed=keep_revealed)
    algorithm, experience, actor = collect(make_model, settings)
    (plan,) = algorithm.replay(experience, actor, 1)
    expected = plain_loss(algorithm, experience, actor, None)
    expected.backward()
    wanted = gradients(actor.model)
    replay = Replay(actor.model, experience.rollout, temperature=1.0, batch_tokens=batch_tokens)
    _, loss = replay.accumulate(plan.states, plan.objective)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-9, atol=1e-12)
    for name, found in gradients(actor.model).items():
        torch.testing.assert_close(found, wanted[name], rtol=1e-9, atol=1e-12)


def test_clipping_is_by_the_policy_before_the_first_update(make_model: Callable) -> None:
    algorithm, experience, actor = collect(make_model, RLDFSettings(steps=2))
    plan = algorithm.replay(experience, actor, 2)[1]
    replay = Replay(actor.model, experience.rollout, temperature=1.0, batch_tokens=10**6)
    objective = plan.objective
    assert isinstance(objective, CleanStateObjective) and not objective.is_reinforce
    nobody = torch.full((plan.states.tokens,), -10.0, dtype=torch.float64)
    _, loss = replay.accumulate(plan.states, objective, old=nobody)
    assert loss == 0
    assert all(gradient.abs().max() == 0 for gradient in gradients(actor.model).values())


# Left out: cases with an entropy bonus |H_ref − H| (`random.token.it1.th0.ent0.1`), an experiment of the authors' code
# that is neither in the paper nor here.
RLDF_CASES = [
    (family, case)
    for family in ("llada", "dream")
    for case, options in sorted(golden(f"loss/rldf_{family}").about["cases"].items())
    if "beta" in options and not options["entropy_coeff"]
]


def first_token_from_its_own_position(model: Denoiser, prompt_length: int) -> None:
    """The authors cut the response out of the logits before they shift them; what predicts a token is right but for
    the first response token, which is scored at its own position. Their choice, made here and not in the product."""
    aligned = model._source

    def source(input_ids: Tensor, is_real: Tensor | None, scored: Tensor | None) -> Tensor | None:
        assert scored is not None
        found = aligned(input_ids, is_real, scored)
        assert found is not None
        return torch.where(scored == prompt_length, scored, found)

    model._source = source  # type: ignore[method-assign]


@pytest.mark.parametrize(("family", "case"), RLDF_CASES)
def test_loss_and_gradients_are_the_authors(family: str, case: str) -> None:
    tensors, about = golden(f"loss/rldf_{family}")
    options = about["cases"][case]
    schedule = f"sched.{options['schedule']}"
    prompt_ids, completion = tensors["prompt_ids"], tensors["completion_ids"]
    counts = tensors["completion_mask"].bool()  # the authors leave out end and pad tokens
    rows, length = completion.shape
    should_mask = tensors[f"{schedule}.should_mask"].bool()
    current = tensors[f"{schedule}.current_pos"].bool()
    step_id = tensors[f"{schedule}.step_id"]
    group = torch.arange(rows) // about["num_generations"]
    reward = tensors["rewards"]
    advantage = floored_advantage(reward, group, 1e-2, ddof=1)
    torch.testing.assert_close(advantage, tensors["advantages"], rtol=1e-4, atol=1e-5)

    objective = ObjectiveSettings(
        clip_low=options["epsilon_low"],
        clip_high=options["epsilon_high"],
        kl_weight=options["beta"],
        kl_estimator=options["kl_type"],
    )
    settings = RLDFSettings(
        steps=step_id.shape[1],
        threshold=options["low_prob_threshold"],
        keep_revealed=options["low_prob_threshold"] > 0,
        normalization=options["loss_norm"],
        advantage_ddof=1,
    )
    zeros = torch.zeros(rows, length)
    rollout = Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=torch.ones_like(prompt_ids, dtype=torch.bool),  # the authors do not mask padding
        response_ids=completion,
        trainable=torch.ones_like(completion, dtype=torch.bool),
        reveal_step=torch.zeros_like(completion),
        logprob=zeros,
        entropy=zeros,
        prompt=group,
        group=group,
        row_forwards=0,
    )
    experience = Experience(rollout, reward, zeros, advantage, torch.arange(rows))
    response, rank = (step_id >= 0).nonzero(as_tuple=True)
    masked, revealed = should_mask[response, rank], current[response, rank] & counts[response]
    # the authors divide by the schedule's length also where a response has fewer states
    share = 1 / (rows * settings.steps) if settings.normalization == "sample" else 1 / settings.steps
    plan = RLDF(settings, objective).plan(
        experience,
        response,
        ~masked,
        masked & counts[response],
        revealed,
        rank,
        torch.full((len(response),), share),
        updates=options["num_iterations"],
        total=lambda value: value,
    )

    def replay(model: str) -> Replay:
        loaded = load_model(golden_model(about["models"][model]), dtype="float32")
        if loaded.is_shifted:
            first_token_from_its_own_position(loaded, prompt_ids.shape[1])
        return Replay(loaded, rollout, temperature=1.0, batch_tokens=200)

    states = plan.states
    old = replay("old").score(states)
    recorded = tensors[f"{schedule}.old_logps"][rank[states.source], states.row, states.position]
    torch.testing.assert_close(old, recorded, rtol=1e-4, atol=2e-4)
    current_policy = replay("current")
    scores, loss = current_policy.accumulate(
        states,
        plan.objective,
        old=old if options["num_iterations"] > 1 else None,
        reference=replay("ref").score(states) if options["beta"] else None,
    )
    assert float(loss) == pytest.approx(options["loss"], abs=1e-4)
    if options["beta"]:
        measured = plan.objective.measure(scores)
        if settings.normalization == "token" and len(step_id[0]) == 1:
            assert float(measured["kl"].mean()) == pytest.approx(options["mean_kl"], rel=1e-3)
    found = gradients(current_policy.model)
    if family == "dream":
        # their embedding has a padding index, whose row gets no gradient; the padding of prompts is not masked here
        found["model.embed_tokens.weight"][about["pad_id"]] = 0
    norm = torch.stack([gradient.square().sum() for gradient in found.values()]).sum().sqrt()
    assert float(norm) == pytest.approx(options["grad_norm"], rel=1e-3)
    recorded_gradients = [key for key in tensors if key.startswith(f"{case}.grad:")]
    assert recorded_gradients
    for key in recorded_gradients:
        gradient = found[key.split(":", 1)[1]]
        torch.testing.assert_close(
            gradient, tensors[key], rtol=1e-3, atol=1e-3 * float(tensors[key].abs().max()) + 1e-8
        )


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_the_least_certain_steps_are_the_authors(family: str) -> None:
    """τ → 0 is deterministic: their sampled step ids, from their recorded step map and probabilities."""
    tensors = golden(f"loss/rldf_{family}").tensors
    step_id = tensors["sched.sequential_T0.step_id"]
    zeros = torch.zeros_like(tensors["rollout_token_probs"])
    rollout = Rollout(
        prompt_ids=tensors["prompt_ids"],
        prompt_mask=torch.ones_like(tensors["prompt_ids"], dtype=torch.bool),
        response_ids=tensors["completion_ids"],
        trainable=tensors["completion_mask"].bool(),  # the authors leave out end and pad tokens
        reveal_step=tensors["step_map"],
        logprob=tensors["rollout_token_probs"].log(),
        entropy=zeros,
        prompt=torch.arange(len(zeros)),
        group=torch.arange(len(zeros)),
        row_forwards=0,
    )
    chosen = choose_steps(rollout, torch.arange(len(zeros)), step_id.shape[1], 0.0)
    for row in range(len(zeros)):
        if not tensors["step_map"][row].any():
            continue  # a response of one step; their code replays none of it
        # a response with fewer steps than k has some of them twice in theirs
        theirs = sorted({step for step in step_id[row].tolist() if step >= 0})
        assert chosen[row].nonzero().flatten().tolist() == theirs
