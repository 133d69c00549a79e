// Plots by plotly, which is loaded when the first one is drawn. Colours come from the CSS variables of the theme.
//
//   const plot = drawPlot(element, () => ({data: […], layout: {…}}), {label: "Loss by step"});
//   plot.update();   plot.remove();

import { fill, h } from "./dom.js";
import { colour, onTheme } from "./theme.js";

const SOURCE = "/studio/plotly.min.js";
let loading = null;

/** Plotly itself, once. */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = h("script", { src: SOURCE });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error('Plots need plotly, which the server does not have: pip install "larvatus[studio]".'));
    });
    document.head.append(script);
  });
  return loading;
}

const SERIES = 8;
/** The colour of the n-th series, from 0; they come round after eight. */
export const seriesColour = (n) => colour(`--series-${(n % SERIES) + 1}`);

const axis = () => ({
  gridcolor: colour("--line"),
  linecolor: colour("--line-strong"),
  zerolinecolor: colour("--line"),
  tickfont: { color: colour("--ink-soft") },
  automargin: true,
});

/** A layout in the colours of the theme, with `given` over it. */
export function themed(given = {}) {
  const font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") };
  const axes = Object.fromEntries(
    ["xaxis", "yaxis", ...Object.keys(given).filter((name) => /^[xy]axis\d+$/.test(name))].map((name) => [name, { ...axis(), ...given[name] }]),
  );
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 48, r: 12, t: 12, b: 44 },
    colorway: Array.from({ length: SERIES }, (_, n) => seriesColour(n)),
    hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line-strong"), font: { color: colour("--ink"), family: font.family } },
    legend: { font: { color: colour("--ink-soft") } },
    ...given,
    font: { ...font, ...given.font },
    ...axes,
  };
}

/** Text in a plot is read by plotly as a little markup (<b>, <br>); this makes any text show as it is. */
export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Draws what `figure()` gives, and again when the theme changes. `label` says what it shows to those who do not see it. */
export function drawPlot(element, figure, { label = "", onClick = null, config = {} } = {}) {
  element.classList.add("plot");
  element.setAttribute("role", "img");
  if (label) element.setAttribute("aria-label", label);
  let gone = false;
  let listening = false;

  async function draw() {
    try {
      const library = await plotly();
      if (gone) return;
      const { data, layout } = figure();
      await library.react(element, data, themed(layout), { displayModeBar: false, responsive: true, ...config });
      if (onClick && !listening) element.on("plotly_click", (event) => onClick(event.points[0]));
      listening = true;
    } catch (error) {
      element.classList.add("plot-missing");
      fill(element, h("p", { class: "notice notice-warn" }, error.message));
    }
  }

  const forget = onTheme(draw);
  draw();
  return {
    update: draw,
    remove() {
      gone = true;
      forget();
      window.Plotly?.purge(element);
    },
  };
}
