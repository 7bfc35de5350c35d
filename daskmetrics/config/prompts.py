"""The prompt that is put before a text, by the text's role and its task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from daskmetrics.core.errors import unknown

ROLES = ("query", "document")
DEFAULT = "default"  # the configured prompt of texts without a role
_ALIASES = {"passage": "document", "corpus": "document"}


@dataclass(frozen=True)
class Prompts:
    """Prompts by the name of a role, task or kind of task.

    Names of both are ``TASK-ROLE`` and ``KIND-ROLE``.

    >>> prompts = Prompts({"query": "query: ", "STS": "similar: ", "ask": "? "}, default="ask")
    >>> [prompts.of("query"), prompts.of("document"), prompts.of(None), prompts.of(None, "STS12", "sts")]
    ['query: ', '', '? ', 'similar: ']
    """

    texts: Mapping[str, str]
    default: str | None = None  # name of the prompt of texts without a role

    def of(self, role: str | None, task: str = "", kind: str = "") -> str:
        """The prompt of a text, empty if it has none.

        The order is that of mteb (``get_prompt_name``), then of ``SentenceTransformer.encode``:
        task and role, task, kind and role, kind, role, and the default for a text without a role.
        """
        by_kind = {_plain(name): name for name in self.texts}
        kind = _plain(kind)
        names = [task, by_kind.get(kind, ""), role or self.default or ""]
        if role:
            names[1:1] = [by_kind.get(f"{kind}-{role}", "")]
            names[:0] = [f"{task}-{role}"]
        return next((self.texts[name] for name in names if name and name in self.texts), "")

    def as_dict(self) -> dict[str, object]:
        """As plain JSON values; empty if every prompt is."""
        if not any(self.texts.values()):
            return {}
        return {"prompts": dict(sorted(self.texts.items())), "default_prompt": self.default}

    @property
    def summary(self) -> str:
        """Every prompt, quoted."""
        texts = {
            ("default" if name == self.default else name): text
            for name, text in self.texts.items()
            if text
        }
        return ", ".join(f"{name} {text!r}" for name, text in sorted(texts.items())) or "none"


NO_PROMPTS = Prompts({})


def configured(prompts: str | Mapping[str, str]) -> Prompts:
    """Prompts of a configuration: one text for all, or by name.

    >>> configured({"query": "query: ", "passage": "passage: "}).of("document")
    'passage: '
    """
    if isinstance(prompts, str):
        return Prompts(dict.fromkeys((DEFAULT, *ROLES), prompts), DEFAULT)
    renamed = {_ALIASES.get(name, name): text for name, text in prompts.items()}
    return Prompts(renamed, DEFAULT if DEFAULT in renamed else None)


def check_names(
    prompts: str | Mapping[str, str], tasks: Collection[str], kinds: Collection[str]
) -> None:
    """Check that prompts are for known roles, tasks or kinds of task."""
    if isinstance(prompts, str):
        return
    plain_kinds = {_plain(kind) for kind in kinds}
    for name in prompts:
        head, _, role = name.rpartition("-")
        of_task = head if role in ROLES else name
        if (
            name not in (DEFAULT, *ROLES, *_ALIASES)
            and of_task not in tasks
            and _plain(of_task) not in plain_kinds
        ):
            raise unknown("prompt", name, (DEFAULT, *ROLES, *kinds, *tasks))


def _plain(kind: str) -> str:
    """A kind of task as both mteb and daskmetrics write it."""
    return kind.replace("_", "").lower()
