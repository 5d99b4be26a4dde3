"""Queues runs with the generated Python client, and reads them back.

Arguments: the URL of a server, and a token of an administrator.
"""

import datetime
import sys

from tidemill_client import AuthenticatedClient
from tidemill_client.api.projects import put_projects_project
from tidemill_client.api.runs import get_runs, get_runs_run, get_runs_run_events, post_runs
from tidemill_client.models import NewRun, NewRunMetadata, Problem, ProblemCode, PutProject, QueueOutcome, RunState
from tidemill_client.types import UNSET

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)
put_projects_project.sync("python", client=client, body=PutProject(environments=["staging"]))

# Only required fields, then all kinds of optional ones: numbers, lists, times and free metadata.
first = post_runs.sync(client=client, body=NewRun(project="python", env="staging"))
assert isinstance(first, QueueOutcome) and first.created and first.status == RunState.QUEUED, first
metadata = {"recipients": ["ann"], "retry": {"after": 5}}
detailed = NewRun(
    project="python",
    env="staging",
    kind="email",
    labels=["linux"],
    priority=7,
    available_at=datetime.datetime(2026, 2, 14, 10, 30, tzinfo=datetime.UTC),
    metadata=NewRunMetadata.from_dict(metadata),
)
second = post_runs.sync(client=client, body=detailed, idempotency_key="once")
assert isinstance(second, QueueOutcome) and second.created, second
repeated = post_runs.sync(client=client, body=detailed, idempotency_key="once")
assert isinstance(repeated, QueueOutcome), repeated
assert repeated.run_id == second.run_id and not repeated.created, repeated

# Two pages of one run each, the newest first.
runs, after = [], UNSET
while after is not None:
    page = get_runs.sync(client=client, project="python", limit=1, after=after)
    assert not isinstance(page, Problem), page
    runs += page.items
    after = page.next_
assert [run.run_id for run in runs] == [second.run_id, first.run_id], runs
shown = get_runs_run.sync(second.run_id, client=client)
assert (shown.kind, shown.priority, shown.labels) == ("email", 7, ["linux"]), shown
assert shown.metadata == metadata, shown.metadata

events = get_runs_run_events.sync(second.run_id, client=client)
assert (events.items[0].message, events.items[0].seq) == ("Run queued", 1), events

unknown = get_runs_run.sync_detailed("run-0", client=client)
assert unknown.status_code == 404, unknown
assert isinstance(unknown.parsed, Problem) and unknown.parsed.code == ProblemCode.UNKNOWN_RUN, unknown.parsed
