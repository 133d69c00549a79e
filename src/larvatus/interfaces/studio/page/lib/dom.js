// Elements without markup: h("p", {class: "soft"}, "text", h("b", null, "more")).
// Children are text nodes or nodes. Nothing here, or anywhere in the page, parses a string as HTML.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "readOnly", "indeterminate", "htmlFor"]);

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") {
    if (!name.startsWith("on")) throw new TypeError(`${name} is no event`);
    element.addEventListener(name.slice(2).toLowerCase(), value);
  } else if (name.startsWith("on")) {
    throw new TypeError(`${name} must be a function`);
  } else if (name === "style") {
    for (const [key, part] of Object.entries(value)) element.style.setProperty(key, String(part)); // CSP allows no style attribute
  } else if (name === "dataset") {
    Object.assign(element.dataset, value);
  } else if (PROPERTIES.has(name)) {
    element[name] = value;
  } else if (name === "href" && /^\s*(javascript|data|vbscript):/i.test(String(value))) {
    throw new TypeError("a link leads to an address");
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function built(element, attributes, children) {
  // A select takes its value only once its options are there.
  const { value, ...rest } = attributes ?? {};
  for (const [name, each] of Object.entries(rest)) setAttribute(element, name, each);
  append(element, children);
  if (value !== undefined) {
    if (element.namespaceURI === SVG || !("value" in element)) setAttribute(element, "value", value);
    else element.value = value ?? "";
  }
  return element;
}

/** An HTML element with attributes and children. */
export function h(tag, attributes, ...children) {
  return built(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return built(document.createElementNS(SVG, tag), attributes, children);
}

/** The nodes of a picture, [tag, attributes, children], that the server drew; its texts are text nodes. */
export function pictured(node, make = h) {
  if (typeof node === "string") return node;
  const [tag, attributes, children] = node;
  const own = tag === "svg" ? s : make;
  return own(tag, attributes, children.map((child) => pictured(child, own)));
}

/** An element's children replaced by these. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

let counter = 0;
/** An id that no other element has. */
export const newId = (stem = "id") => `${stem}-${++counter}`;

/** Calls `task` when nothing came for `wait` milliseconds; `.now()` at once, `.cancel()` never. */
export function debounce(task, wait = 350) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => task(...given), wait);
  };
  later.cancel = () => clearTimeout(timer);
  later.now = (...given) => {
    clearTimeout(timer);
    return task(...given);
  };
  return later;
}
