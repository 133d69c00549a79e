// What a view did, as code: copyButtons({python: () => "…", curl: () => "…"}).
// `pythonFor` and `curlFor` write it from a request, so that every view says it in the same way.

import { fill, h } from "./dom.js";
import { studioToken } from "./token.js";

const LONGEST_WORD = 30_000; // bytes may be four times as many; Linux takes 131,072

/** A Python literal of a JSON value. */
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${literal(name)}: ${literal(each)}`).join(", ")}}`;
  return String(value);
}

/** Keyword arguments: {top: 5, joint: true} is "top=5, joint=True"; undefined ones are left out. */
export const keywords = (given) =>
  Object.entries(given).filter(([, value]) => value !== undefined).map(([name, value]) => `${name}=${literal(value)}`).join(", ");

/** Lines of Python that load a model and use it as `model`. */
export function pythonFor(model, ...lines) {
  const path = model?.packaged ? "" : literal(model?.path ?? model?.name ?? "");
  return ["import larvatus", "", `model = larvatus.load(${path})`, ...lines].join("\n") + "\n";
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The request as a line for a shell. A body that is longer than a shell takes in one word is read from standard input. */
export function curlFor(path, body, headers = {}) {
  const address = quoted(new URL(path, location.href).href);
  if (body === undefined) return `curl ${address}\n`;
  const given = Object.entries({ "Content-Type": "application/json", ...headers }).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  const json = JSON.stringify(body); // one line, so that no line of it can end the text below
  const parts = [`curl ${address}`, ...given].join(" \\\n  ");
  if (json.length <= LONGEST_WORD) return `${parts} \\\n  -d ${quoted(json)}\n`;
  return `${parts} \\\n  --data-binary @- <<'END'\n${json}\nEND\n`;
}

/** The same for a route of the studio, which needs the token of the address that it printed. */
export const studioCurl = (path, body) => curlFor(path, body, { "X-Studio-Token": studioToken() });

async function copied(text) {
  if (navigator.clipboard?.writeText) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = h("textarea", { value: text, class: "visually-hidden" }); // pages that are not on this machine have no clipboard
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("not copied");
}

/** Two buttons; what cannot be copied is shown, to be copied by hand. Either may be a text or a function that gives one. */
export function copyButtons({ python, curl }) {
  const said = h("span", { class: "faint", role: "status" });
  const shown = h("div", { hidden: true });
  const button = (name, source) =>
    source &&
    h(
      "button",
      {
        type: "button",
        class: "button button-small",
        onclick: async () => {
          const text = typeof source === "function" ? source() : source;
          try {
            await copied(text);
            said.textContent = "Copied";
            shown.hidden = true;
          } catch {
            said.textContent = "The browser does not let the page copy; here it is:";
            fill(shown, h("pre", { class: "code", tabindex: 0 }, text)).hidden = false;
          }
          setTimeout(() => (said.textContent = shown.hidden ? "" : said.textContent), 2500);
        },
      },
      name,
    );
  return h("div", { class: "stack" }, h("div", { class: "copies" }, button("Copy as Python", python), button("Copy as curl", "offline" in document.documentElement.dataset ? null : curl), said), shown);
}
