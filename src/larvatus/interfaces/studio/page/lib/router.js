// Hash routes with parameters: #/fill?model=mine&text=the%20river. Every state of a view is in its address.
//
//   const router = makeRouter((id, params) => show(id, params));
//   router.start("fill");
//   router.setParams({text: "the river"});     // the address follows, the view stays

const LONGEST = 30_000; // characters of one parameter in the address; browsers and chat programs cut longer ones
const WAIT_MS = 250;

/** {id, params} of a hash; what cannot be read is left out, never an error. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const params = {};
  for (const [name, value] of new URLSearchParams(query)) params[name] = value;
  return { id: path, params };
}

/** The address of a view in a state; empty values are left out. */
export function href(id, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${id}${text ? `?${text}` : ""}`;
}

/** Names of parameters that are too long for an address. */
export const tooLong = (params) => Object.keys(params).filter((name) => String(params[name] ?? "").length > LONGEST);

export function makeRouter(show, { onTooLong = () => {} } = {}) {
  let current = { id: "", params: {} };
  let written = "";
  let timer = 0;

  function address() {
    const left = tooLong(current.params);
    onTooLong(left);
    return href(current.id, Object.fromEntries(Object.entries(current.params).filter(([name]) => !left.includes(name))));
  }

  function write() {
    clearTimeout(timer);
    timer = 0;
    if (written && location.hash !== written && location.hash.startsWith("#/")) return follow(); // a link was followed meanwhile
    written = address();
    if (location.hash !== written) history.replaceState(null, "", written);
  }

  function follow() {
    if (location.hash === written && written) return;
    if (!location.hash.startsWith("#/")) return; // a link inside the page
    clearTimeout(timer);
    current = parse(location.hash);
    written = location.hash;
    show(current.id, { ...current.params });
  }

  return {
    get current() {
      return { id: current.id, params: { ...current.params } };
    },
    start(first) {
      window.addEventListener("hashchange", follow);
      window.addEventListener("pagehide", () => timer && write());
      if (location.hash.startsWith("#/")) return follow();
      history.replaceState(null, "", href(first));
      follow();
    },
    /** Changes parameters of the view that is shown; null removes one. `again` shows the view again with them. */
    setParams(changes, { again = false } = {}) {
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === "") delete current.params[name];
        else current.params[name] = String(value);
      }
      if (again) {
        write();
        show(current.id, { ...current.params });
      } else {
        clearTimeout(timer);
        timer = setTimeout(write, WAIT_MS); // browsers refuse many changes of the address at once
      }
    },
    /** Writes the address now, so that it can be copied. */
    settle: write,
  };
}
