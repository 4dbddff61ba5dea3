"""ManagerAnswer: what AMD's config manager has made of a request, by its Events, its label, and the GPUs. Writes nothing.

What device-config-manager v1.3.1 does (pkg/config_manager/gpu_config_manager.go):

- The label is `failure` as soon as one GPU refuses. It goes on with the others, tries again each minute for half an hour, and
  may write `success` then. So that label ends nothing: only an Event does, of a reason that it does not try again.
- A request ends the one before only after the running attempt, which gives its own answer. So the label `success` can be of
  another profile: an Event with ours counts, or GPUs that stay right. The manager works on one request after another; while
  it is known to be at work on the last one, no answer to an older one can follow.
- It may have read its file before the profile arrived: kubelet updates a volume within two minutes.
- An answer can be lost: its label when another writer is faster, its Event always. Then GPUs that have become right, and stay
  so, are the answer.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from gpushare_node.adapters.kube.cluster import PodEvent
from gpushare_node.contract.struct import Struct

_LAST_WORDS = frozenset(
    {
        "PartitionFailure",
        "InvalidProfileInfo",
        "NonExistentProfile",
        "ConfigMapNotPresent",
        "InvalidJSONInConfigMap",
        "DuplicateProfileExists",
        "AMDSMIAPIFailure",
    }
)
"""The reasons of Events after which it does not try again."""

_UNKNOWN_PROFILE = "NonExistentProfile"
_FILE_SECONDS = 180.0
"""How long its file may lack the profile after the request."""

_SETTLE_SECONDS = 60.0
"""How long the GPUs may differ after its success."""

_AGAIN_SECONDS = 5.0
"""How long the GPUs must have been right, with the label `success` of whichever profile."""

_QUIET_SECONDS = 300.0
"""The same without any answer."""

_MAX_REASON = 300


class Verdict(Enum):
    """`OPEN`: it may still be at work."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


class ManagerEvent(Struct):
    """What an Event of the manager says of a request for `profile`."""

    profile: str
    reason: str
    is_success: bool
    text: str


class AnswerFacts(Struct):
    """What is known at `now`, in seconds of the clock; the request was made `age` seconds before.

    `event` is the newest one of the request, `is_labelled` whether the label says success. `difference` is how the GPUs differ
    from what was requested, empty if they do not; None where nothing says what they should be.
    """

    now: float
    age: float
    event: ManagerEvent | None
    is_labelled: bool
    difference: str | None


class ManagerAnswer(Struct, frozen=False):
    """The answer to one request, as looks at the facts show it. `text` says why it has failed, or is not there."""

    text: str = ""
    _right_since: float | None = None
    _success_since: float | None = None
    _has_differed: bool = False

    def judge(self, facts: AnswerFacts, *, is_over: bool = False) -> Verdict:
        """Return the verdict. `is_over`: all its time has passed."""
        stable = self._look(facts)
        event = facts.event
        if event is not None and event.is_success:
            if not facts.difference:
                return Verdict.DONE
            if self._success_since is None:
                self._success_since = facts.now
            self.text = f"it reports success, but {facts.difference}"
            return Verdict.FAILED if facts.now - self._success_since >= _SETTLE_SECONDS else Verdict.OPEN
        if event is not None:
            self.text = f"it reports {event.text}"
            if event.reason in _LAST_WORDS and (event.reason != _UNKNOWN_PROFILE or facts.age >= _FILE_SECONDS):
                return Verdict.FAILED
        is_confirmed = facts.is_labelled and stable >= _AGAIN_SECONDS
        is_quiet = (self._has_differed or is_over) and stable >= _QUIET_SECONDS
        if is_confirmed or is_quiet:
            return Verdict.DONE
        if event is None:
            silence = f"it has not answered for {facts.age:.0f} s" if is_over else ""
            self.text = "; ".join(filter(None, (silence, facts.difference)))
        return Verdict.FAILED if is_over else Verdict.OPEN

    def _look(self, facts: AnswerFacts) -> float:
        """Return for how long the GPUs have been right."""
        if facts.difference is None:
            return 0.0
        if facts.difference:
            self._has_differed, self._right_since = True, None
            return 0.0
        if self._right_since is None:
            self._right_since = facts.now
        return facts.now - self._right_since


def find_event(events: Iterable[PodEvent], profile: str, since: float) -> ManagerEvent | None:
    """Return what the newest Event of a request for this profile says. `since`, in seconds since 1970, is when it was made."""
    known = (_read(event) for event in events if event.at >= int(since))
    return next((one for one in known if one is not None and one.profile == profile), None)


def _read(event: PodEvent) -> ManagerEvent | None:
    """Return what the Event says: its message is a JSON document. None if it is another's."""
    try:
        document: Mapping[str, Any] = json.loads(event.message)
        gpus = [one for one in document.get("GPUStatus") or () if "succ" not in str(one.get("Status")).lower()]
        texts = [f"GPU {one.get('GpuID')}: {one.get('Message') or one.get('Status')}" for one in gpus]
        texts = texts or [str(document.get("Reason") or document.get("FinalStatus") or "")]
        profile, is_success = str(document.get("SelectedProfile") or ""), document.get("FinalStatus") == "Success"
    except (ValueError, AttributeError, TypeError):
        return None
    text = " ".join("; ".join((event.reason, *filter(None, texts))).split())[:_MAX_REASON]
    return ManagerEvent(profile=profile, reason=event.reason, is_success=is_success, text=text)
