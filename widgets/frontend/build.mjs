// Builds widgets/static/{studio,throughput}.{js,css} from src. Usage: npm ci && npm run build
// `--outdir DIR` writes elsewhere: the test that compares the committed files with a fresh build uses it.

import { build } from "esbuild";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const flag = process.argv.indexOf("--outdir");
const outdir = flag > 0 ? process.argv[flag + 1] : join(here, "..", "static");

const options = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  outdir,
};

// The panel below the Studio is a widget of its own with a root of its own; the Studio's rules hold there too.
const sameLook = {
  name: "same-look",
  setup(on) {
    on.onLoad({ filter: /studio\.css$/ }, async ({ path }) => (
      { contents: (await readFile(path, "utf8")).replaceAll(/\.cms-studio\b/g, ".cms-throughput"), loader: "css" }));
  },
};

await build({ ...options, entryPoints: ["src/studio.js", "src/studio.css"] });
await build({ ...options, entryPoints: ["src/throughput.js", "src/throughput.css"], plugins: [sameLook] });
