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
