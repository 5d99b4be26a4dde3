// Makes a container in Azurite: node container.mjs URL NAME, with the account and its key in the environment.
// The product never makes containers, and so has no call for it.
import { createHmac } from "node:crypto";

const [url, name] = process.argv.slice(2);
const { AZURE_STORAGE_ACCOUNT_NAME: account, AZURE_STORAGE_ACCOUNT_KEY: key } = process.env;
const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-08-06" };
const signed = [
  `PUT${"\n".repeat(12)}x-ms-date:${headers["x-ms-date"]}`,
  `x-ms-version:${headers["x-ms-version"]}`,
  `/${account}/${account}/${name}`,
  "restype:container",
].join("\n");
const signature = createHmac("sha256", Buffer.from(key, "base64")).update(signed, "utf8").digest("base64");
const answer = await fetch(`${url}/${account}/${name}?restype=container`, {
  method: "PUT",
  headers: { ...headers, authorization: `SharedKey ${account}:${signature}` },
});
if (answer.status !== 201) {
  console.error(`${answer.status} ${await answer.text()}`);
  process.exit(1);
}
