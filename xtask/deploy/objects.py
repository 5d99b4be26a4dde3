"""Prints the objects of a YAML stream as JSON, after a check against the schemas of Kubernetes.

Usage: objects.py VERSION... < FILE. Fields that a version does not know are errors. Objects of KEDA are not checked.
"""

import json
import sys

import kubernetes_validate
import yaml

objects = [document for document in yaml.safe_load_all(sys.stdin) if document is not None]
errors = []
for item in objects:
    if item["apiVersion"].startswith("keda.sh/"):
        continue
    for version in sys.argv[1:]:
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except (
            kubernetes_validate.ValidationError,
            kubernetes_validate.SchemaNotFoundError,
        ) as error:
            name = f"{item['kind']} {item['metadata']['name']}"
            errors.append(f"{name}, Kubernetes {version}: {error}")
if errors:
    sys.exit("\n".join(errors))
json.dump(objects, sys.stdout)
