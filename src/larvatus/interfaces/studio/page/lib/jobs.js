// Requests to a job that the server runs in the background: a training in Learn, a probe in Probe.
//
//   const { start, act } = jobRequests({ api, address: "/studio/api/learn", order: () => ({ … }), said, show, under });

import { fill } from "./dom.js";
import { errorNotice } from "./parts.js";

/** `start` sends what `order` returns, `act` the name of an action. `show` gets the job's state; an error is shown in `said`. */
export function jobRequests({ api, address, order, said, show, under }) {
  async function request(path, body) {
    try {
      show(await api.post(`${address}/${path}`, body()));
      return true;
    } catch (error) {
      fill(said, errorNotice(error));
      return false;
    }
  }

  async function start(button) {
    button.disabled = true;
    fill(said);
    if (await request("start", order)) under.scrollIntoView({ block: "nearest" });
    button.disabled = false;
  }

  return { start, act: (what) => request(what, () => ({})) };
}
