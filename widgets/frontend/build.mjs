// Builds widgets/static/studio.js and studio.css from src. Usage: npm ci && npm run build
// `--outdir DIR` writes elsewhere: the test that compares the committed files with a fresh build uses it.

import { build } from "esbuild";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const flag = process.argv.indexOf("--outdir");
const outdir = flag > 0 ? process.argv[flag + 1] : join(here, "..", "static");

await build({
  absWorkingDir: here,
  entryPoints: ["src/studio.js", "src/studio.css"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  outdir,
});
