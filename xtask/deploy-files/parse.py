"""Prints a YAML file, or the merged blocks of Terraform files, as JSON."""

import json
import sys

import hcl2
import yaml
from hcl2.utils import SerializationOptions


def terraform(paths):
    """Merges the blocks of all files, as Terraform does with the files of a folder."""
    options = SerializationOptions(with_comments=False, strip_string_quotes=True)
    merged = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for kind, blocks in hcl2.load(file, serialization_options=options).items():
                merged.setdefault(kind, []).extend(blocks)
    return merged


def main(paths):
    if paths[0].endswith(".tf"):
        return terraform(paths)
    with open(paths[0], encoding="utf-8") as file:
        return yaml.safe_load(file)


json.dump(main(sys.argv[1:]), sys.stdout)
