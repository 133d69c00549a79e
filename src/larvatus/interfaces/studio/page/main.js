// The studio: the shell over the server's views and models, and the message when the server is gone.

import { api, checkConnection, onConnection, watchConnection } from "./lib/api.js";
import { fill, h } from "./lib/dom.js";
import { reload, startShell } from "./shell.js";
import { groups } from "./views/index.js";

const banner = document.getElementById("banner");

async function loadModels() {
  const [answer, { paths }] = await Promise.all([api.get("/v1/models"), api.get("/studio/api/paths")]);
  return (answer.models ?? []).map((model) => ({ ...model, path: paths[model.name] ?? model.path_name }));
}

onConnection((state) => {
  if (state === "gone") {
    const retry = h("button", { type: "button", class: "button button-small", onclick: checkConnection }, "Try now");
    fill(banner, h("div", { class: "gone" }, h("span", null, h("strong", null, "The server is gone."), " What you typed is kept; the page continues as soon as the server is back."), retry));
    return;
  }
  fill(banner, h("span", { class: "visually-hidden" }, "The server is back."));
  reload();
});

startShell({ api, groups, loadModels });
watchConnection();
