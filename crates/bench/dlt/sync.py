"""Reads the supplier's REST API with dlt's `rest_api` source, and merges the items into PostgreSQL.

Usage: sync.py REST_URL DATABASE_URL PAGE_SIZE PARTS

The list is read as PARTS resources in parallel, each a range of the price with the same number of items. With one part
the settings are dlt's defaults; with more they are the fastest that were found for two cores: parallel resources,
larger buffers without compression, nested values as JSON, and COPY instead of INSERT. The ranges are computed before
the clock starts. The last line of output is JSON: seconds, rows, and peak memory in kB.
"""

import json
import os
import resource
import sys
import tempfile
import time
import urllib.request

SETTINGS = {
    "EXTRACT__WORKERS": "8",
    "EXTRACT__MAX_PARALLEL_ITEMS": "40",
    "NORMALIZE__WORKERS": "2",
    "DATA_WRITER__BUFFER_MAX_ITEMS": "20000",
    "DATA_WRITER__FILE_MAX_ITEMS": "50000",
    "DATA_WRITER__DISABLE_COMPRESSION": "true",
}
# Prices of the supplier are below this number of dollars.
PRICE_MAX = 1_000_000


def with_password(database):
    """Adds a password to a URL without one: dlt requires it, and the server of the benchmark ignores it."""
    scheme, rest = database.split("://", 1)
    user, at, host = rest.partition("@")
    return database if ":" in user else f"{scheme}://{user}:ignored{at}{host}"


def count(url, price_to):
    """Counts the items below a price."""
    with urllib.request.urlopen(f"{url}/offset/items/count?price_to={price_to}") as answer:
        return json.load(answer)["total"]


def bounds(url, parts):
    """Returns the prices that divide the list into parts of the same size."""
    total = count(url, PRICE_MAX)
    found = []
    for part in range(1, parts):
        low, high = 0, PRICE_MAX
        while low + 1 < high:
            middle = (low + high) // 2
            if count(url, middle) * parts < total * part:
                low = middle
            else:
                high = middle
        found.append(high)
    return [None, *found, None]


def resources(url, page_size, parts):
    """Returns the configuration of one resource for each part."""
    limits = bounds(url, parts)
    for part, (price_from, price_to) in enumerate(zip(limits, limits[1:])):
        prices = {"price_from": price_from, "price_to": price_to}
        yield {
            "name": f"items_{part}",
            "table_name": "items",
            "primary_key": "id",
            "write_disposition": "merge",
            "parallelized": parts > 1,
            "endpoint": {
                "path": "offset/items",
                "params": {name: price for name, price in prices.items() if price is not None},
                "data_selector": "data",
                "paginator": {
                    "type": "offset",
                    "limit": page_size,
                    "offset_param": "offset",
                    "limit_param": "limit",
                    "total_path": "meta.total",
                },
            },
        }


def main():
    url, database, page_size, parts = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    if parts > 1:
        os.environ.update(SETTINGS)
    import dlt
    from dlt.sources.rest_api import rest_api_source

    with tempfile.TemporaryDirectory() as folder:
        source = rest_api_source(
            {"client": {"base_url": f"{url}/"}, "resources": list(resources(url, page_size, parts))},
            name="supplier",
            max_table_nesting=0,
        )
        pipeline = dlt.pipeline(
            "supplier",
            pipelines_dir=folder,
            destination=dlt.destinations.postgres(credentials=with_password(database)),
            dataset_name="shop",
        )
        started = time.monotonic()
        loaded = pipeline.run(source, loader_file_format="csv" if parts > 1 else None)
        seconds = time.monotonic() - started
        loaded.raise_on_failed_jobs()
        with pipeline.sql_client() as client:
            rows = client.execute_sql("SELECT count(*) FROM items")[0][0]
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"seconds": seconds, "rows": rows, "peak_kb": peak}))


if __name__ == "__main__":
    main()
