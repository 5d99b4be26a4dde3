"""What the fuzzer does differently from one that knows nothing of the API."""

import ast
import threading

import schemathesis

# Until CPython 3.12, two threads that turn source into a tree at one time upset each other's count of depth, and one
# of them ends with a SystemError. The fuzzer's workers do so when they describe a strategy.
PARSING = threading.Lock()
parse = ast.parse


def parse_one_at_a_time(*arguments, **named):
    with PARSING:
        return parse(*arguments, **named)


ast.parse = parse_one_at_a_time


@schemathesis.hook
def before_call(context, case, kwargs):
    # A claim may wait for a minute by design. What is too long stays as it is: it must be refused.
    body = case.body
    if isinstance(body, dict):
        wait = body.get("wait_secs")
        if isinstance(wait, int) and not isinstance(wait, bool) and 1 < wait <= 60:
            body["wait_secs"] = 1
