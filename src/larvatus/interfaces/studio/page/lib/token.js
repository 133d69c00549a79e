// The token of the address that `larvatus studio` printed: what writes (Learn) carries it. It is kept in this tab, and
// boot.js has taken it out of the address, so that a copied address does not hold it.

const KEPT = "larvatus-studio-token";

/** The token, or an empty text where the page was opened by another address. */
export function studioToken() {
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}
