// The chosen theme before the first paint; a classic script, because modules run after it.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("larvatus-theme");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
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
