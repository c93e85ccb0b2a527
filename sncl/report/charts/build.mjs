// Builds plotly.min.js and LICENSES.txt: plotly.js with the charts a report has, and without the texts of its manual.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { parse } from "acorn";
import { simple } from "acorn-walk";
import { build } from "esbuild";

const traces = ["bar", "heatmap", "histogram"]; // scatter is always there
const entry = `
  const Plotly = require("plotly.js/lib/core");
  Plotly.register([${traces.map((name) => `require("plotly.js/lib/${name}")`)}]);
  module.exports = Plotly;`;

const { outputFiles, metafile } = await build({
  stdin: { contents: entry, resolveDir: "." },
  bundle: true, minify: true, write: false, metafile: true, outdir: ".", legalComments: "none",
  format: "iife", globalName: "Plotly", target: "es2020", charset: "ascii",
  define: { global: "window", "define.amd": "false" },
  loader: { ".css": "empty" }, // of maps, which are not here
});

// What `Plotly.PlotSchema` says about each attribute: a tenth of the file, and nothing reads it.
function withoutDescriptions(text) {
  const cuts = [];
  const isText = (node) =>
    node.type === "Literal" || node.type === "TemplateLiteral"
    || (node.type === "BinaryExpression" && isText(node.left) && isText(node.right))
    || (node.type === "CallExpression" && node.callee.property?.name === "join" && node.callee.object.type === "ArrayExpression");
  simple(parse(text, { ecmaVersion: 2020 }), {
    ObjectExpression(object) {
      object.properties.forEach((each, i) => {
        if (each.key?.name !== "description" || !isText(each.value)) return;
        const next = object.properties[i + 1];
        const start = next || !i ? each.start : object.properties[i - 1].end; // one comma goes with it
        cuts.push([start, next ? next.start : each.end]);
      });
    },
  });
  cuts.sort((a, b) => b[0] - a[0]);
  for (const [start, end] of cuts) text = text.slice(0, start) + text.slice(end);
  parse(text, { ecmaVersion: 2020 });
  return text;
}

const isCode = ([path, each]) => each.bytesInOutput && !path.endsWith(".css");
const used = Object.entries(Object.values(metafile.outputs).find((each) => each.entryPoint).inputs);
const names = used.filter(isCode).map(([path]) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]);
const packages = [...new Set(names.filter(Boolean))].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const { version, license, author } = JSON.parse(readFileSync(`${folder}/package.json`));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const readme = existsSync(`${folder}/README.md`) ? readFileSync(`${folder}/README.md`, "utf8") : "";
  const said = readme.match(/#+ *licen[cs]e[^\n]*\n([\s\S]*?)(\n#|$)/i)?.[1] ?? "";
  const text = file ? readFileSync(`${folder}/${file}`, "utf8") : `${license}, ${author?.name ?? author ?? ""}\n${said}`;
  return { name, version, license, text: text.trim() };
});
const listed = packages.map(({ name, version, license }) => `${name} ${version} (${license})`).join(", ");
const banner = `/*! A part of plotly.js, copyright Plotly, Inc., MIT licence; with ${listed}. Licences: sncl/report/charts/LICENSES.txt */\n`;
const [script] = outputFiles.filter((each) => each.path.endsWith(".js"));
writeFileSync("plotly.min.js", banner + withoutDescriptions(script.text));
writeFileSync("LICENSES.txt", packages.map(({ name, version, text }) => `${name} ${version}\n\n${text}\n`).join(`\n${"-".repeat(80)}\n\n`));
