"""The verdict on a request to AMD's config manager, by its Events, its label and the GPUs."""

import json

import pytest

from gpushare_node.adapters.kube.cluster import PodEvent
from gpushare_node.reconcile.config_manager import AnswerFacts, ManagerAnswer, ManagerEvent, Verdict, find_event

WRONG = "GPU 0 has SPX/NPS1"
OURS, OTHER = "cpx-nps4-8-01234567", "spx-nps1-8-01234567"


def event(reason: str, *, is_success: bool = False) -> ManagerEvent:
    return ManagerEvent(profile=OURS, reason=reason, is_success=is_success, text=reason)


def facts(
    now: float, said: ManagerEvent | None = None, difference: str | None = WRONG, *, is_labelled: bool = False
) -> AnswerFacts:
    return AnswerFacts(now=now, age=now, event=said, is_labelled=is_labelled, difference=difference)


@pytest.mark.parametrize(
    ("reason", "age", "verdict"),
    [
        ("PartitionRetrying", 1800.0, Verdict.OPEN),
        ("PartitionFailure", 1.0, Verdict.FAILED),
        ("InvalidProfileInfo", 1.0, Verdict.FAILED),
        ("AMDSMIAPIFailure", 1.0, Verdict.FAILED),
        ("NonExistentProfile", 179.0, Verdict.OPEN),
        ("NonExistentProfile", 180.0, Verdict.FAILED),
    ],
)
def test_only_a_last_word_is_a_failure(reason: str, age: float, verdict: Verdict) -> None:
    assert ManagerAnswer().judge(facts(age, event(reason))) is verdict


def test_success_counts_for_gpus_that_are_right_within_a_minute() -> None:
    done, answer = event("SuccessfullyPartitioned", is_success=True), ManagerAnswer()
    assert answer.judge(facts(100.0, done)) is Verdict.OPEN
    assert answer.judge(facts(150.0, done, "")) is Verdict.DONE
    answer = ManagerAnswer()
    assert [answer.judge(facts(now, done)) for now in (100.0, 159.0, 160.0)] == [Verdict.OPEN, Verdict.OPEN, Verdict.FAILED]
    assert answer.text == f"it reports success, but {WRONG}"


def test_without_an_event_the_label_counts_for_gpus_that_stay_right() -> None:
    answer = ManagerAnswer()
    assert answer.judge(facts(10.0, is_labelled=True)) is Verdict.OPEN
    assert answer.judge(facts(20.0, difference="", is_labelled=True)) is Verdict.OPEN
    assert answer.judge(facts(25.0, difference="", is_labelled=True)) is Verdict.DONE


def test_without_any_answer_gpus_count_that_have_become_right() -> None:
    answer = ManagerAnswer()
    assert answer.judge(facts(0.0)) is Verdict.OPEN
    looks = [answer.judge(facts(now, difference="")) for now in (10.0, 309.0, 310.0)]
    assert looks == [Verdict.OPEN, Verdict.OPEN, Verdict.DONE]


def test_gpus_that_were_right_before_are_no_answer_until_all_time_has_passed() -> None:
    answer = ManagerAnswer()
    assert [answer.judge(facts(now, difference="")) for now in (0.0, 1000.0)] == [Verdict.OPEN] * 2
    assert answer.judge(facts(1900.0, difference=""), is_over=True) is Verdict.DONE
    assert ManagerAnswer().judge(facts(1900.0), is_over=True) is Verdict.FAILED


def test_where_nothing_says_what_the_gpus_should_be_only_events_count() -> None:
    answer = ManagerAnswer()
    assert answer.judge(facts(1800.0, difference=None, is_labelled=True)) is Verdict.OPEN
    assert answer.judge(facts(1800.0, event("x", is_success=True), None)) is Verdict.DONE


def told(profile: str, at: float, reason: str = "SuccessfullyPartitioned") -> PodEvent:
    gpus = [{"GpuID": 0, "Status": "Success"}, {"GpuID": 1, "Status": "Failure", "Message": "AMDSMI_STATUS_BUSY"}]
    document = {"SelectedProfile": profile, "FinalStatus": "Failure", "Reason": "all", "GPUStatus": gpus}
    return PodEvent(reason=reason, message=json.dumps(document), at=at)


def test_events_of_other_profiles_and_of_before_the_request_are_not_its() -> None:
    events = (PodEvent(reason="Pulled", message="no JSON", at=103.0), told(OTHER, 102.0), told(OURS, 100.0), told(OURS, 99.0))
    found = find_event(events, OURS, 100.9)
    assert found is not None
    assert (found.is_success, found.text) == (False, "SuccessfullyPartitioned; GPU 1: AMDSMI_STATUS_BUSY")
    assert find_event(events, OURS, 101.0) is None
