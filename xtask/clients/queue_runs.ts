// Queues runs with the generated TypeScript client, and reads them back.
// Arguments: the URL of a server, and a token of an administrator.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const [baseUrl = "", token = ""] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function check(condition: boolean, what: string, found: unknown): void {
  if (!condition) throw new Error(`${what}: ${JSON.stringify(found)}`);
}

/** Returns the data of a successful response. */
function succeed<T>(response: { data?: T; error?: unknown }): T {
  if (response.data === undefined) throw new Error(`unexpected error: ${JSON.stringify(response.error)}`);
  return response.data;
}

await client.PUT("/v1/projects/{project}", {
  params: { path: { project: "typescript" } },
  body: { environments: ["staging"] },
});

// Only required fields, then all kinds of optional ones: numbers, lists, times and free metadata.
const plain: components["schemas"]["NewRun"] = { project: "typescript", env: "staging" };
const detailed: components["schemas"]["NewRun"] = {
  ...plain,
  kind: "email",
  labels: ["linux"],
  priority: 7,
  available_at: "2026-02-14T10:30:00Z",
  metadata: { recipients: ["ann"], retry: { after: 5 } },
};
const first = succeed(await client.POST("/v1/runs", { body: plain }));
check(first.created && first.status === "queued", "the first run is queued", first);
const keyed = { params: { header: { "Idempotency-Key": "once" } }, body: detailed };
const second = succeed(await client.POST("/v1/runs", keyed));
const repeated = succeed(await client.POST("/v1/runs", keyed));
check(repeated.run_id === second.run_id && !repeated.created, "a repeated request queues nothing", repeated);

// Two pages of one run each, the newest first.
const runs: components["schemas"]["Run"][] = [];
let after: string | undefined;
do {
  const query = { project: "typescript", limit: 1, ...(after === undefined ? {} : { after }) };
  const page = succeed(await client.GET("/v1/runs", { params: { query } }));
  runs.push(...page.items);
  after = page.next ?? undefined;
} while (after !== undefined);
const ids = runs.map((run) => run.run_id);
check(JSON.stringify(ids) === JSON.stringify([second.run_id, first.run_id]), "both runs are listed", ids);
const shown = succeed(await client.GET("/v1/runs/{run}", { params: { path: { run: second.run_id } } }));
check(shown.kind === "email" && shown.priority === 7 && shown.labels[0] === "linux", "fields are kept", shown);
check(JSON.stringify(shown.metadata) === JSON.stringify(detailed.metadata), "metadata is kept", shown.metadata);

const events = succeed(await client.GET("/v1/runs/{run}/events", { params: { path: { run: second.run_id } } }));
check(events.items[0]?.message === "Run queued" && events.items[0].seq === 1, "the run has an event", events);

const unknown = await client.GET("/v1/runs/{run}", { params: { path: { run: "run-0" } } });
check(unknown.response.status === 404 && unknown.error?.code === "unknown_run", "errors are read", unknown.error);
