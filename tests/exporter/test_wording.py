from __future__ import annotations

from dataclasses import replace

import pytest
from tests.app.fixtures import states

from lastgood import wording
from lastgood.events import Status
from lastgood.state import Incident, LastGood, Place, Suspect, Window

HEADLINES = {
    "gradient": "Rank 3 (node-b, slot 1) computed wrong gradients in steps (50, 100].",
    "gradient on GPUs": "Rank 3 (node-b, GPU-8c1e…, slot 1) computed wrong gradients in steps (50, 100].",
    "nan": "Rank 3 (node-b, slot 1) computed wrong gradients in steps (50, 67]: NaN at step 67.",
    "reduce-all": "A wrong value was made inside the reduce at step 67. No rank stands out.",
    "reduce-one": "Rank 3 (node-b, slot 1) left the reduce at step 67 with a wrong value.",
    "weight": "Rank 3 (node-b, slot 1) held different weights (blocks.1.mlp.up.weight) in steps (50, 75].",
    "optimizer": "Rank 3 (node-b, slot 1) held a different optimizer state (blocks.1.mlp.up.weight/exp_avg) "
    "in steps (50, 75].",
    "data": "The NaN at step 67 came from the data: it came back on another node.",
    "two nodes": "Rank 1 (node-a) or rank 3 (node-b) computed wrong gradients in steps (50, 100].",
}


def about(row: str) -> Incident:
    return states.ROWS[row]().incidents[0]


@pytest.mark.parametrize("row", states.ROWS)
def test_each_row_of_the_demo_has_its_headline(row: str) -> None:
    assert wording.headline(about(row)) == HEADLINES[row]


def test_a_suspicious_rank_is_named_as_having_a_symptom_not_as_a_culprit() -> None:
    incident = replace(about("nan"), status="suspicious", scope="job", suspects=())
    assert wording.headline(incident) == "Rank 3 (node-b) had NaN in its gradient at step 67. Not yet known why."


def test_a_suspicious_reduce_names_no_rank() -> None:
    base = about("nan")
    findings = tuple(replace(f, ranks=(), places=(), phase="reduced") for f in base.findings)
    incident = replace(base, status="suspicious", suspects=(), findings=findings)
    assert wording.headline(incident) == "NaN came out of the reduce at step 67. Not yet known why."


def test_a_suspicious_gradient_names_no_rank_and_claims_no_more_than_numbers_say() -> None:
    base = about("gradient")
    findings = tuple(replace(f, ranks=(), places=()) for f in base.findings)
    incident = replace(base, status="suspicious", suspects=(), findings=findings)
    assert wording.headline(incident) == (
        "A gradient may have been wrong in steps (50, 100]: two nodes differ by more than this job's repeats explain. "
        "Not yet known why."
    )
    advice = [words for words, _ in wording.advice(incident)]
    assert "Wait for the next replay: it decides" not in advice
    assert advice[-1].endswith("then replay can tell who is wrong")
    assert "drain" not in str(advice).lower()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("suspicious", "16 384 ranks had NaN in their loss at step 67. Not yet known why."),
        ("confirmed", "16 384 ranks had NaN in their loss at step 67. No rank stands out."),
        ("cleared", "The NaN of 16 384 ranks at step 67 came from the data or the software, no GPU."),
    ],
)
def test_a_symptom_of_the_whole_job_counts_its_ranks_and_names_none(status: Status, said: str) -> None:
    base = about("nan")
    places = tuple(Place(rank, f"node-{rank // 8}", f"cpu-{rank % 8}", rank % 8) for rank in range(64))
    found = tuple(replace(f, ranks=tuple(range(16384)), places=places, phase="loss") for f in base.findings)
    incident = replace(base, status=status, scope="job", suspects=(), findings=found)
    assert wording.headline(incident) == said


def test_a_job_that_does_not_repeat_itself_accuses_nobody() -> None:
    incident = replace(about("gradient"), status="undecided", scope="job", suspects=())
    assert wording.headline(incident) == "This job does not repeat itself. No GPU is accused."
    assert "drain" not in str(wording.advice(incident)).lower()


def test_a_replay_without_a_verdict_yet_is_not_called_a_job_that_does_not_repeat_itself() -> None:
    incident = replace(about("gradient"), status="suspicious", suspects=())
    assert wording.headline(incident).endswith("Not yet known why.")


def test_candidates_beside_the_accused_are_not_in_the_headline() -> None:
    candidate = Suspect(5, "node-c", "cpu-1", 1, "candidate")
    incident = replace(about("gradient"), suspects=(states.ACCUSED, candidate))
    assert wording.headline(incident) == HEADLINES["gradient"]


def test_several_devices_of_one_node_are_the_node() -> None:
    both = (Suspect(2, "node-b", "cpu-0", 0, "accused"), states.ACCUSED)
    incident = replace(about("weight"), scope="node", suspects=both)
    assert wording.headline(incident).startswith("Node node-b (ranks 2 and 3) held different weights")
    assert wording.scope_phrase(incident) == "to a node"


def test_many_candidates_are_counted() -> None:
    many = tuple(Suspect(r, f"node-{r % 2}", "cpu-0", 0, "candidate") for r in range(8))
    incident = replace(about("two nodes"), suspects=many)
    assert wording.headline(incident).startswith("One of 8 ranks on 2 nodes computed")


def test_candidates_of_one_node_are_told_apart_by_their_slots() -> None:
    pair = (Suspect(2, "node-b", "cpu-0", 0, "candidate"), Suspect(3, "node-b", "cpu-1", 1, "candidate"))
    incident = replace(about("two nodes"), suspects=pair)
    assert wording.headline(incident).startswith("Rank 2 (node-b, slot 0) or rank 3 (node-b, slot 1) computed")


def test_no_headline_uses_a_word_that_the_look_forbids() -> None:
    forbidden = ("detected", "potential", "anomaly", "please", "!", "guilty", "faulty", "lied")
    texts = [wording.headline(about(row)).lower() for row in states.ROWS]
    assert not [(text, word) for text in texts for word in forbidden if word in text]


def test_a_window_of_one_step_is_a_step() -> None:
    incident = replace(about("gradient"), window=Window(1, 99, 1, 100, False, ""))
    assert wording.when_phrase(incident) == "at step 100"


def test_a_window_over_two_attempts_names_both() -> None:
    window = Window(1, 80, 2, 60, False, "")
    assert wording.window_text(window) == "(step 80 of attempt 1, step 60 of attempt 2]"
    assert "after step 80 of attempt 1 and by step 60 of attempt 2" in wording.headline(
        replace(about("gradient"), window=window)
    )


@pytest.mark.parametrize(
    ("step", "text"), [(0, "0"), (9_999, "9999"), (10_000, "10\u202f000"), (1_840_000, "1\u202f840\u202f000")]
)
def test_steps_are_grouped_from_ten_thousand(step: int, text: str) -> None:
    assert wording.step_text(step) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (4.9, "4 s"), (59, "59 s"), (60, "1 min"), (840, "14 min"), (10_800, "3 h"), (172_800, "2 d")],
)
def test_ages_have_their_largest_unit(seconds: float, text: str) -> None:
    assert wording.age_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (59.6, "1 min"), (250, "4 min 10 s"), (3_600, "1 h"), (90_000, "25 h")]
)
def test_durations_have_at_most_two_units(seconds: float, text: str) -> None:
    assert wording.duration_text(seconds) == text


def test_a_device_without_a_gpu_is_named_by_its_slot() -> None:
    assert wording.device_text(Place(3, "node-b", "cpu-1", 1)) == "node-b, slot 1 (no GPU)"
    assert wording.device_text(Place(3, "node-b", states.GPU, 1)) == "node-b, GPU-8c1e…, slot 1"


def test_fingerprints_are_grouped_and_other_texts_are_left_alone() -> None:
    assert wording.hex_text("9f3177c0e2a41b08") == "9f31 77c0 e2a4 1b08"
    assert wording.hex_text("3.1e-2") == "3.1e-2"


def test_the_resume_command_has_plain_digits_and_survives_any_path() -> None:
    good = LastGood(1, 184_000, 'checkpoints/"a" \u05d0/step-184000', "trusted", "")
    assert wording.resume_command(good) == 'monitor.resume("checkpoints/\\"a\\" \u05d0/step-184000")'
    assert wording.resume_command(replace(good, step=-1)) is None


def test_only_accused_nodes_are_drained_and_candidates_are_left_out() -> None:
    accused, undecided = about("gradient"), about("two nodes")
    assert ("Drain node-b", "scontrol update nodename=node-b state=drain reason=r-3f2a91c0") in wording.advice(accused)
    assert not [words for words, _ in wording.advice(undecided) if words.startswith("Drain")]
    assert wording.without_phrase(undecided) == "without node-a and node-b"


def test_what_has_been_done_is_not_asked_for_again() -> None:
    recovered = about("gradient")
    assert wording.advice(recovered)[0] == ("Resumed from step 50 without node-b: attempt 2 has recovered", None)
    still_open = replace(recovered, state="open", recovered_by=None)
    command = 'monitor.resume("checkpoints/a1-step-000050")'
    assert wording.advice(still_open)[0] == ("Resume from step 50 without node-b", command)


def test_a_skipped_step_needs_no_resume() -> None:
    went_on = replace(about("reduce-one"), recovered_by=1, state="recovered")
    assert wording.skipped(went_on)
    assert wording.advice(went_on)[0] == ("Nothing to resume: the step was skipped and training went on", None)
    assert wording.resume_number(went_on) == "not needed"
    assert wording.not_needed(went_on.resume) == (
        "No resume needed: the step was skipped and training went on. Last good at the verdict: step 50."
    )
    assert not wording.skipped(about("gradient"))
    assert wording.resume_number(about("gradient")) == "step 50"


def test_a_checkpoint_that_cannot_be_used_gives_no_command() -> None:
    gone = LastGood(1, 50, "checkpoints/a1-step-000050", "missing", "")
    assert wording.resume_command(gone) is None
    closed = replace(about("gradient"), state="closed", recovered_by=None, resume=gone)
    assert not [words for words, _ in wording.advice(closed) if "step 0" in words]


def test_candidates_on_all_nodes_of_the_attempt_are_not_left_out_and_a_third_node_is_needed() -> None:
    undecided = replace(about("two nodes"), other_nodes=False)
    assert (wording.excluded_nodes(undecided), wording.without_phrase(undecided)) == ((), "")
    words = [words for words, _ in wording.advice(undecided)]
    assert words[0] == "Resume from step 50"
    assert "a third node is needed" in words[-1]


def test_a_node_name_cannot_leave_its_place_in_a_command() -> None:
    assert wording.drain_command("a;rm -rf /", about("gradient")).startswith("scontrol update nodename='a;rm -rf /' ")


def test_no_command_is_printed_that_does_not_exist() -> None:
    commands = [command or "" for row in states.ROWS for _, command in wording.advice(about(row))]
    assert not [command for command in commands if command.startswith("lastgood")]


def test_the_cost_says_up_to_when_it_counts() -> None:
    cost = about("gradient").cost
    assert wording.cost_text(cost, True) == ("50 steps", "12 min 32 s · 1.2 GPU-h", "from the resume step to recovery")
    assert (
        wording.cost_text(replace(cost, rising=True), False)[2]
        == "from the resume step to the newest event of training; not recovered"
    )
    closed = wording.cost_text(cost, True, recovered=False)[2]
    assert closed == "from the resume step to the newest event of training; closed, not recovered"


def test_few_ranks_are_listed_and_many_are_counted() -> None:
    assert wording.ranks_text([]) == "no rank"
    assert wording.ranks_text(range(16)).endswith("14 and 15")
    assert wording.ranks_text(range(16384)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 16\u202f376 more"
