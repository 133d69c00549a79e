// Light or dark: the system's theme, or the one that was chosen here (boot.js applies it before the first paint).

import { h, s } from "./dom.js";

const KEPT = "larvatus-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

/** "light" or "dark": what is shown now. */
export const theme = () => document.documentElement.dataset.theme;

let chosen = false; // whether the theme was chosen here, so that it no longer follows the system
try {
  chosen = ["light", "dark"].includes(localStorage.getItem(KEPT));
} catch {
  // Nothing is stored: the system's theme.
}

/** Calls listener(theme) after every change. */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function show(next) {
  document.documentElement.dataset.theme = next;
  listeners.forEach((listener) => listener(next));
}

export function setTheme(next) {
  chosen = true;
  try {
    localStorage.setItem(KEPT, next);
  } catch {
    // Not stored where nothing may be stored.
  }
  show(next);
}

system.addEventListener("change", () => chosen || show(system.matches ? "dark" : "light"));

/** The value of a CSS variable now: colour("--accent"). */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const SUN = "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM12 2v2.5M12 19.5V22M2 12h2.5M19.5 12H22M4.9 4.9l1.8 1.8M17.3 17.3l1.8 1.8M4.9 19.1l1.8-1.8M17.3 6.7l1.8-1.8";
const MOON = "M20 14.5A8.3 8.3 0 0 1 9.5 4a8.3 8.3 0 1 0 10.5 10.5Z";

/** A button that changes between light and dark. */
export function themeButton() {
  const path = s("path", { fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round" });
  const label = h("span", null);
  const button = h(
    "button",
    { type: "button", class: "button button-small button-quiet theme-button", onclick: () => setTheme(theme() === "dark" ? "light" : "dark") },
    s("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true" }, path),
    label,
  );
  const show = () => {
    const dark = theme() === "dark";
    path.setAttribute("d", dark ? SUN : MOON);
    label.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Light theme" : "Dark theme");
  };
  show();
  onTheme(show);
  return button;
}
