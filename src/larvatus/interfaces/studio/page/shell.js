// The shell: navigation, the model of the view, and the view itself. `main.js` starts it over the server, `offline/main.js`
// over a model in the page.
//
//   startShell({ api, groups, loadModels: async () => […], foot: h("p", null, "…") });

import { isAbort, setKey } from "./lib/api.js";
import { fill, h } from "./lib/dom.js";
import { modelPicker, pick, wanted } from "./lib/models.js";
import { empty, errorNotice, field, notice } from "./lib/parts.js";
import { href, makeRouter } from "./lib/router.js";
import { themeButton } from "./lib/theme.js";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const longNote = h("div", { hidden: true }, notice("warn", "This text is too long for the address: a link to this page will not hold it."));

let site = null; // what startShell was given
let views = [];
let models = null;
let unmount = null;
let refocus = false;
let shown = 0; // counts what was shown, so that a slow view never replaces a newer one

const router = makeRouter(show, { onTooLong: (names) => (longNote.hidden = names.length === 0) });

function makeNav() {
  fill(
    nav,
    site.groups.map((group) => [
      h("div", { class: "nav-head", "aria-hidden": "true" }, group.title),
      h("ul", { class: "nav-group", "aria-label": group.title }, group.views.map((view) => h("li", null, h("a", { class: "nav-link", dataset: { view: view.id } }, view.title)))),
    ]),
  );
}

/** On a narrow screen the navigation scrolls sideways: an arrow at each end beyond which there is more. Links are reached by Tab without them. */
function makeArrows() {
  const arrow = (sign, side) => h("button", { type: "button", class: `nav-more nav-more-${side}`, tabindex: -1, "aria-hidden": "true", hidden: true, onclick: () => nav.scrollBy({ left: sign * 0.7 * nav.clientWidth }) }, sign > 0 ? "›" : "‹");
  const [before, after] = [arrow(-1, "before"), arrow(1, "after")];
  nav.after(before, after);
  const show = () => {
    before.hidden = nav.scrollLeft <= 1;
    after.hidden = nav.scrollLeft >= nav.scrollWidth - nav.clientWidth - 1;
  };
  nav.addEventListener("scroll", show, { passive: true });
  new ResizeObserver(show).observe(nav);
  show();
}

/** Marks the current view; the links stay the same elements, so that focus stays on them. */
function markNav(id, params) {
  for (const link of nav.querySelectorAll("a")) {
    link.setAttribute("href", href(link.dataset.view, params.model ? { model: params.model } : {}));
    if (link.dataset.view === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const current = nav.querySelector("[aria-current]");
  if (current && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = current.offsetLeft - nav.clientWidth / 2 + current.offsetWidth / 2;
}

function leave() {
  try {
    unmount?.();
  } catch (error) {
    console.error(error);
  }
  unmount = null;
}

async function show(id, params) {
  const turn = ++shown;
  const entry = views.find((view) => view.id === id);
  leave();
  markNav(id, params);
  document.title = entry ? `${entry.title} · Larvatus studio` : "Larvatus studio";
  if (!entry) return unknown(id);
  try {
    models ??= await site.loadModels();
    const { view } = await entry.load();
    if (turn === shown) mount(view, params);
  } catch (error) {
    if (turn !== shown || isAbort(error)) return;
    fill(main, h("h1", null, entry.title), error.status === 401 || error.status === 403 ? keyForm(error) : errorNotice(error));
    if (!("status" in error)) console.error(error);
  }
}

function unknown(id) {
  fill(main, empty("There is no such view", `The address names a view “${id}”, which the studio does not have.`, h("a", { class: "button", href: "#/fill" }, "Go to Fill")));
}

function mount(view, params) {
  const model = view.needs ? pick(models, view.needs, params.model) : pick(models, null, params.model);
  const body = h("div", { class: "view-body" });
  const choose = (name) => {
    router.setParams({ model: name }, { again: true });
    refocus = true; // the picker that had focus is built again
  };
  const picker = view.needs && model && modelPicker({ models, needs: view.needs, value: model.name, onchange: choose });
  const title = h("div", { class: "view-title" }, h("h1", null, view.title), view.about && h("p", { class: "about" }, view.about));
  fill(main, h("div", { class: "view-head" }, title, picker), asked(view, model, params), longNote, body);
  if (view.needs && !model) return fill(body, lacking(view));
  const context = { api: site.api, params: { ...params, ...(model && view.needs ? { model: model.name } : {}) }, setParams: router.setParams, models, model, choose };
  unmount = view.mount(body, context) ?? null;
  if (refocus) picker?.querySelector("select").focus();
  refocus = false;
}

/** A notice that another model is shown than the address names. */
function asked(view, model, params) {
  if (!view.needs || !model || !params.model || params.model === model.name) return null;
  const known = models.some((each) => each.name === params.model);
  const why = known ? `cannot do what this view shows, which is for ${wanted(view.needs)}` : "is not on this server";
  return notice("warn", `${params.model} ${why}; shown is ${model.name}.`);
}

function lacking(view) {
  const there = models.length ? `The server has ${models.map((model) => model.name).join(", ")}.` : "The server has no model.";
  return empty(
    "No model here can do this",
    `${view.title} needs ${wanted(view.needs)}. ${there} Start the studio with one more directory:`,
    h("code", null, "larvatus studio DIR DIR…"),
  );
}

function keyForm(error) {
  const input = h("input", { type: "password", autocomplete: "off", required: true });
  const send = (event) => {
    event.preventDefault();
    setKey(input.value);
    models = null;
    show(router.current.id, router.current.params);
  };
  return h("form", { class: "card", onsubmit: send }, notice("warn", error.message), field("Key of the server", input, "Kept in this tab only."), h("div", null, h("button", { class: "button button-main" }, "Continue")));
}

/** Shows the view again, with the models as they are now. */
export function reload() {
  models = null;
  show(router.current.id, router.current.params);
}

export function startShell(given) {
  site = given;
  views = site.groups.flatMap((group) => group.views);
  document.getElementById("side-foot").append(themeButton());
  if (site.foot) main.after(site.foot);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  window.addEventListener("models-changed", () => (models = null)); // Learn has added one
  makeNav();
  makeArrows();
  router.start(views[0].id);
}
