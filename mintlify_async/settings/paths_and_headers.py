"""The service's paths, key prefixes and header names. The service documents only some of them.

Each of them is a field of :class:`Assumptions`, so a user can correct it. Each other assumption has a comment
with the word "assumption" in the code. The page *What we assume* lists all.
"""

from __future__ import annotations

from attrs import define


@define(frozen=True, kw_only=True)
class Assumptions:
    """The assumptions about details of the service's API, which may change, or which are not documented.

    Pass ``assumptions=Assumptions(get_job_path="/v3/…")`` to a session to correct
    an assumption. Paths are templates: ``{project_id}``, ``{job_id}`` and ``{domain}`` are
    replaced by percent-encoded values.

    Args:
        base_url: The service's URL, if neither the argument nor the environment names one.
        create_job_path: The path for a new job.
        get_job_path: The path of a job for polling.
        send_message_path: The path for a follow-up.
        ask_path: The path for a question.
        admin_key_prefix: The prefix of admin keys.
        assistant_key_prefix: The prefix of assistant keys.
        foreign_key_prefixes: The prefixes of other products' keys.
        widget_id_prefix: The prefix of the public ids of web widgets, which are no keys.
        thread_id_header: The response header with a new thread's id, in lower case.
        thread_key_header: The response header with a new thread's key, in lower case.
        request_id_headers: The headers that may contain a request's id. The first one present is used.
    """

    base_url: str = "https://api.mintlify.com"  # assumption: base URL
    create_job_path: str = "/v2/agent/{project_id}/job"
    get_job_path: str = "/v2/agent/{project_id}/job/{job_id}"  # assumption: get-job path
    send_message_path: str = "/v2/agent/{project_id}/job/{job_id}/message"
    ask_path: str = "/discovery/v2/assistant/{domain}/message"
    admin_key_prefix: str = "mint_"  # assumption: key prefixes
    assistant_key_prefix: str = "mint_dsc_"
    foreign_key_prefixes: tuple[str, ...] = ("mint_us_",)
    widget_id_prefix: str = "mint_widget_"
    thread_id_header: str = "x-thread-id"  # assumption: thread headers
    thread_key_header: str = "x-thread-key"
    request_id_headers: tuple[str, ...] = ("x-request-id", "x-vercel-id", "cf-ray")  # assumption: request id

    def kind_of_key(self, key: str) -> str:
        """Return ``admin``, ``assistant``, ``widget``, ``foreign`` or ``unknown``, by the longest prefix."""
        kinds = [(self.admin_key_prefix, "admin"), (self.assistant_key_prefix, "assistant")]
        kinds.append((self.widget_id_prefix, "widget"))
        kinds += [(prefix, "foreign") for prefix in self.foreign_key_prefixes]
        for prefix, kind in sorted(kinds, key=lambda pair: -len(pair[0])):
            if prefix and key.startswith(prefix):
                return kind
        return "unknown"
