// Polling while the page is visible; less often while the server does not answer.
//
//   const stop = every(2000, async (signal) => { … });

const SLOWEST_MS = 15_000;

export function every(wait, task) {
  const gone = new AbortController();
  let timer = 0;
  let pause = wait;
  let under = false;

  async function turn() {
    clearTimeout(timer);
    if (gone.signal.aborted || under) return;
    if (!document.hidden) {
      under = true;
      try {
        await task(gone.signal);
        pause = wait;
      } catch (error) {
        if (gone.signal.aborted) return;
        if (error.name !== "ApiError") console.error(error);
        pause = Math.min(SLOWEST_MS, pause * 2);
      } finally {
        under = false;
      }
    }
    if (!gone.signal.aborted) timer = setTimeout(turn, pause);
  }

  const seen = () => !document.hidden && turn();
  document.addEventListener("visibilitychange", seen);
  turn();
  return () => {
    gone.abort();
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}
