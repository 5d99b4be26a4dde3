"""Reads and writes the example of each operation with the generated Python client.

Argument: the OpenAPI document.
"""

import importlib
import json
import sys

import httpx

from tidemill_client import Client, models

METHODS = {"get", "put", "post", "patch", "delete"}
JSON = "application/json"


def plain(value):
    """Returns the JSON value of a model, of a list of models, or of a plain value."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def same(value):
    """Returns a value as JSON text in which a time has one form."""
    return json.dumps(value, sort_keys=True).replace("+00:00", "Z")


def check(read, example, place):
    assert same(plain(read)) == same(example), f"{place}: {same(plain(read))} instead of {same(example)}"


def main(path):
    with open(path) as file:
        document = json.load(file)
    client = Client(base_url="http://127.0.0.1", raise_on_unexpected_status=True)
    responses = bodies = 0
    for operations in document["paths"].values():
        for operation in (operation for method, operation in operations.items() if method in METHODS):
            name = operation["operationId"]
            module = importlib.import_module(f"tidemill_client.api.{operation['tags'][0]}.{name}")
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get(JSON)
                if content is not None:
                    sent = httpx.Response(int(status), json=content["example"])
                    check(module._parse_response(client=client, response=sent), content["example"], f"{name} {status}")
                    responses += 1
            content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
            schema = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if hasattr(models, schema):
                check(getattr(models, schema).from_dict(content["example"]), content["example"], f"body of {name}")
                bodies += 1
    assert responses > 100 and bodies > 30, f"only {responses} responses and {bodies} bodies were found"


main(sys.argv[1])
