// The theme before the first paint: the chosen one, or the system's. A classic script, because modules run after it.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("larvatus-theme");
  } catch {
    // A browser that stores nothing follows the system.
  }
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = kept === "light" || kept === "dark" ? kept : system;
})();

// The token of the address goes with what writes (lib/token.js); out of the address, a copied link does not hold it.
(() => {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (!token) return;
  try {
    sessionStorage.setItem("larvatus-studio-token", token);
  } catch {
    return; // it stays in the address, and Learn says that it has none
  }
  address.searchParams.delete("token");
  history.replaceState(null, "", address.pathname + address.search + address.hash);
})();
