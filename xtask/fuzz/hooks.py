"""What the fuzzer does differently from one that knows nothing of the API."""

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    # A claim may wait for a minute by design. What is too long stays as it is: it must be refused.
    body = case.body
    if isinstance(body, dict):
        wait = body.get("wait_secs")
        if isinstance(wait, int) and not isinstance(wait, bool) and 1 < wait <= 60:
            body["wait_secs"] = 1
