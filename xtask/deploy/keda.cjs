// Checks the objects of KEDA in a JSON list against the schemas of npm: node keda.cjs < FILE, in the folder of the
// packages. The schemas accept fields that they do not know, so each field must also have a rule in its validator.
const { readFileSync } = require("node:fs");
const { join } = require("node:path");

const folder = join(process.cwd(), "node_modules/@kubernetes-models/keda");
const models = require(join(folder, "keda.sh/v1alpha1"));
const errors = [];

function unknown(value, path, rules) {
  if (Array.isArray(value)) {
    value.forEach((item, index) => unknown(item, `${path}/${index}`, rules));
  } else if (value !== null && typeof value === "object") {
    for (const [key, inner] of Object.entries(value)) {
      if (!new RegExp(`\\.${key}\\b`).test(rules)) errors.push(`${path}/${key} is not a field of KEDA`);
      // Its keys depend on the type of the trigger.
      if (key !== "metadata") unknown(inner, `${path}/${key}`, rules);
    }
  }
}

for (const item of JSON.parse(readFileSync(0, "utf8"))) {
  if (!item.apiVersion.startsWith("keda.sh/")) continue;
  const name = `${item.kind} ${item.metadata.name}`;
  if (models[item.kind] === undefined) {
    errors.push(`${name}: KEDA has no such kind`);
    continue;
  }
  try {
    new models[item.kind](item).validate();
  } catch (error) {
    errors.push(`${name}: ${error.message}`);
  }
  unknown(item.spec, `${name}: spec`, readFileSync(join(folder, `_schemas/KedaShV1alpha1${item.kind}.js`), "utf8"));
}
if (errors.length > 0) {
  console.error(errors.join("\n"));
  process.exit(1);
}
