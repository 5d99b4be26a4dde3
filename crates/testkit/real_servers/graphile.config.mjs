// PostGraphile with its usual preset and filters, for the schema `shop` of one database.
import { makePgService } from "postgraphile/adaptors/pg";
import { PostGraphileAmberPreset } from "postgraphile/presets/amber";
import { PostGraphileConnectionFilterPreset } from "postgraphile-plugin-connection-filter";

export default {
  extends: [PostGraphileAmberPreset, PostGraphileConnectionFilterPreset],
  pgServices: [makePgService({ connectionString: process.env.SHOP_DATABASE, schemas: ["shop"] })],
  grafserv: { host: "127.0.0.1", port: Number(process.env.SHOP_PORT), graphiql: false },
};
