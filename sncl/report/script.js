"use strict";
// Draws the figures of a report. All strings in the data are plain text; plotly would read some as markup, so they are
// escaped on the way in.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const palettes = {
    light: ["#2467c9", "#d9541e", "#0b8f6a", "#a23bb5", "#b07900", "#0f8aa8", "#c22f5c", "#5d6b2f", "#6a4fd0", "#7a5230"],
    dark: ["#6aa8ff", "#ff8f5e", "#3ecf9f", "#d98be8", "#f0b83d", "#4fc6e3", "#ff7f9f", "#b7c870", "#a996ff", "#d0a27c"],
  };
  const inks = {
    light: { ink: "#17202b", quiet: "#5b6775", line: "#dde2e8", card: "#ffffff", low: "#f2f6fc", high: "#0d3b85" },
    dark: { ink: "#e6ebf1", quiet: "#9aa7b5", line: "#2c3641", card: "#181f27", low: "#1b2a3d", high: "#8fc0ff" },
  };
  const dashes = ["solid", "dash", "dot", "dashdot"], hatches = ["", "/", "x", "."];
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null; // the theme the reader asked for; the system's until then
  let printing = false;
  let folded = []; // what is open on paper only

  const theme = () => (printing ? "light" : chosen ?? (prefersDark.matches ? "dark" : "light"));
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const plain = (value) =>
    typeof value === "string" ? escaped(value)
      : Array.isArray(value) ? value.map(plain)
        : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]))
          : value;
  const faint = (colour, part) => colour + Math.round(255 * part).toString(16).padStart(2, "0");
  const known = (value) => value !== null && value !== undefined;

  function band(series, colour) {
    const points = series.x.map((x, i) => [x, series.y[i], series.deviation[i]]).filter((each) => known(each[1]));
    if (!points.some((each) => each[2] > 0)) return [];
    return [{
      type: "scatter", mode: "lines", fill: "toself", fillcolor: colour, line: { width: 0 }, hoverinfo: "skip",
      x: [...points.map((p) => p[0]), ...points.map((p) => p[0]).reverse()],
      y: [...points.map((p) => p[1] + p[2]), ...points.map((p) => p[1] - p[2]).reverse()],
      showlegend: false, legendgroup: series.name,
    }];
  }

  function traces(given) {
    const colours = palettes[theme()], ink = inks[theme()];
    return plain(given).flatMap(({ series, pattern, deviation, thin, ...each }) => {
      const number = series ?? 0, kind = ((pattern ?? 0) + Math.floor(number / colours.length)) % dashes.length, colour = colours[number % colours.length];
      const spread = deviation?.some((value) => value > 0);
      const number_format = each.type === "histogram" ? "%{y}" : "%{y:.4~g}";
      const hovertemplate = `${each.name}: ${number_format}${spread ? " ± %{customdata:.3~g}" : ""}<extra></extra>`;
      const common = { ...each, legendgroup: each.name, hovertemplate, ...(spread ? { customdata: deviation } : {}) };
      if (each.type === "scatter") {
        const line = { color: colour, width: thin ? 1.4 : 2.4, dash: dashes[kind] };
        const mode = thin ? "lines" : "lines+markers";
        const main = { ...common, mode, line, marker: { size: 7, color: colour } };
        return spread ? [...band({ ...each, deviation }, faint(colour, given.length > 6 ? 0.07 : 0.16)), main] : [main];
      }
      if (each.type === "heatmap") {
        const cells = each.z.length * each.z[0].length;
        return [{
          ...each, colorscale: [[0, ink.low], [1, ink.high]], xgap: 2, ygap: 2, hoverongaps: false,
          hovertemplate: "%{y}, %{x}: %{z}<extra></extra>", ...(cells <= 144 ? { texttemplate: "%{z:.0f}" } : {}),
          colorbar: { thickness: 10, outlinewidth: 0, tickfont: { color: ink.quiet } },
        }];
      }
      const errors = spread ? { error_y: { type: "data", array: deviation, color: ink.quiet, thickness: 1.4, width: 4 } } : {};
      const marker = { color: faint(colour, 0.85), line: { color: ink.card, width: 1 }, pattern: { shape: hatches[kind], size: 6, solidity: 0.25 } };
      return [{ ...common, ...errors, marker, ...(each.type === "histogram" ? { nbinsx: 40 } : {}) }];
    });
  }

  function layout(view, plot) {
    const ink = inks[theme()], heat = view.data[0].type === "heatmap", given = plain(view.layout);
    const axis = { gridcolor: heat ? ink.card : ink.line, zeroline: false, linecolor: ink.line, tickcolor: ink.line, automargin: true };
    const title = (text) => ({ text: plain(text), standoff: 8, font: { size: 13, color: ink.quiet } });
    const lines = view.data.some((each) => each.type === "scatter");
    const several = view.data.length > 1;
    const histogram = view.data[0].type === "histogram";
    const places = new Set(view.data.flatMap((each) => each.x)).size; // few bars are not to be broad ones
    const long = Math.max(...view.data.map((each) => String(each.name).length)) > 24;
    const narrow = plot.clientWidth < 560 || long;
    return {
      ...given,
      xaxis: { ...axis, title: title(view.x), ...(heat ? {} : { showgrid: lines }), ...given.xaxis },
      yaxis: { ...axis, title: title(view.y), ...(heat ? { autorange: "reversed" } : {}), ...(lines || heat ? {} : { rangemode: "tozero" }), ...given.yaxis },
      paper_bgcolor: ink.card, plot_bgcolor: ink.card, bargap: histogram ? 0.06 : Math.max(0.25, 1 - 0.15 * places),
      font: { family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", size: 13, color: ink.ink },
      margin: { l: 12, r: 12, t: 34, b: 12 },
      hovermode: heat ? "closest" : lines ? "x unified" : "closest",
      hoverlabel: { bgcolor: ink.card, bordercolor: ink.line, font: { color: ink.ink } },
      showlegend: several && given.showlegend !== false,
      legend: narrow ? { orientation: "h", y: -0.2, yanchor: "top", x: 0 } : { x: 1.01, y: 1 },
    };
  }

  const drawn = []; // what is on the page, so that a choice in one figure is taken over by the others

  function make(figure) {
    const frame = document.getElementById("figure-" + figure.name);
    const state = { figure, frame, plot: frame.querySelector(".plot"), keys: [...figure.views[0].keys] };
    const choices = frame.querySelector(".choices");
    state.selects = figure.selectors.map((name, level) => {
      const label = document.createElement("label"), select = document.createElement("select");
      label.append(name, select);
      choices.append(label);
      select.addEventListener("change", () => {
        for (const other of drawn) {
          const at = other.figure.selectors.indexOf(name);
          if (other === state || (at >= 0 && ["stream", "read-out", "memory", "run"].includes(name))) choose(other, other === state ? level : at, select.value);
        }
      });
      return select;
    });
    for (const button of frame.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => save(state, button.dataset.save));
    }
    drawn.push(state);
    settle(state);
    state.waiting = true;
  }

  const options = ({ figure, keys }, level) =>
    [...new Set(figure.views.filter((view) => keys.slice(0, level).every((key, i) => view.keys[i] === key)).map((view) => view.keys[level]))];

  function settle(state) { // keep what was chosen where it exists, else take the first there is
    state.selects.forEach((select, level) => {
      const there = options(state, level);
      if (!there.includes(state.keys[level])) state.keys[level] = there[0];
      select.replaceChildren(...there.map((text) => new Option(text, text)));
      select.value = state.keys[level];
      select.disabled = there.length < 2;
    });
  }

  function choose(state, level, value) {
    const kept = [...state.keys];
    state.keys[level] = value;
    settle(state);
    if (state.keys.some((key, i) => key !== kept[i])) draw(state);
  }

  const view = (state) => state.figure.views.find((each) => each.keys.every((key, i) => key === state.keys[i]));

  function draw(state) {
    const shown = view(state);
    state.waiting = false;
    const config = { responsive: true, displaylogo: false, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };
    return Plotly.react(state.plot, traces(shown.data), layout(shown, state.plot), config);
  }

  function download(url, name) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
  }

  function csv(shown) {
    const cell = (value) => {
      let text = known(value) ? String(value) : "";
      if (typeof value === "string" && /^[=+\-@]/.test(text)) text = "'" + text; // no formula for a spreadsheet
      return /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    };
    const rows = [["series", shown.x || "x", shown.y || "value", "deviation"]];
    for (const each of shown.data) {
      if (each.type === "heatmap") {
        each.z.forEach((row, i) => row.forEach((value, j) => rows.push([each.y[i], each.x[j], value, ""])));
      } else if (each.type === "histogram") {
        each.x.forEach((value) => rows.push([each.name, value, "", ""]));
      } else {
        each.x.forEach((value, i) => rows.push([each.name, value, each.y[i], each.deviation?.[i]]));
      }
    }
    return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  async function save(state, kind) {
    const name = `sncl-${state.figure.name}.${kind}`;
    if (kind === "csv") {
      const url = URL.createObjectURL(new Blob([csv(view(state))], { type: "text/csv" }));
      download(url, name);
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    } else {
      download(await Plotly.toImage(state.plot, { format: kind, width: 960, height: 540, scale: 2 }), name);
    }
  }

  const button = document.getElementById("theme");
  function paint() {
    document.documentElement.dataset.theme = theme();
    button.textContent = theme() === "dark" ? "light" : "dark";
    for (const state of drawn) if (!state.waiting) draw(state);
  }
  button.addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    paint();
  });
  prefersDark.addEventListener("change", paint);
  matchMedia("(max-width: 40rem)").addEventListener("change", paint); // a legend beside or below its figure
  addEventListener("beforeprint", () => {
    printing = true;
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const each of folded) each.open = true;
    for (const state of drawn) state.waiting = false;
    paint();
  });
  addEventListener("afterprint", () => {
    printing = false;
    for (const each of folded) each.open = false;
    paint();
  });

  paint();
  figures.forEach(make);
  const seen = new IntersectionObserver((entries) => { // a long page is drawn as it is read
    for (const entry of entries) {
      const state = drawn.find((each) => each.plot === entry.target);
      if (entry.isIntersecting && state.waiting) draw(state);
    }
  }, { rootMargin: "600px" });
  for (const state of drawn) seen.observe(state.plot);
})();
