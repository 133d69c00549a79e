// The growing records of a training run, read piece by piece.
//
//   const reader = recordReader((query, signal) => api.get(`/studio/api/runs/records?${query}`, {signal}));
//   await reader.read(signal);      reader.records      // true if something is new

const MOST_POINTS = 1_500; // of a line; more cannot be seen, and make a page slow

export function recordReader(get) {
  const reader = { records: [], broken: 0, after: 0, stamp: "", read };

  /** Reads all there is; gives whether anything is new. */
  async function read(signal) {
    let news = false;
    for (;;) {
      const piece = await get(new URLSearchParams({ after: reader.after, stamp: reader.stamp }).toString(), signal);
      if (piece.restarted) {
        reader.records = [];
        reader.broken = 0;
        news = true;
      }
      for (const record of piece.records) reader.records.push(record);
      reader.broken += piece.broken;
      news ||= piece.records.length > 0;
      reader.after = piece.after;
      reader.stamp = piece.stamp;
      if (!piece.more || (!piece.records.length && !piece.broken)) return news;
    }
  }

  return reader;
}

/** Points of a field: {x, y, thinned}; `x` is the step, or seconds since the first record. Pauses of a run do not count. */
export function series(records, name, { by = "step", kind = null } = {}) {
  const begun = records[0]?.time ?? 0;
  const held = records.filter((record) => (kind === null || record.kind === kind) && record[name] !== undefined);
  const every = Math.ceil(held.length / MOST_POINTS) || 1;
  const chosen = held.filter((_, number) => number % every === 0 || number === held.length - 1);
  return { x: chosen.map((record) => (by === "time" ? record.time - begun : record.step)), y: chosen.map((record) => record[name]), every };
}

/** A running mean that forgets, for lines that jump; 0 leaves them as they are. */
export function smooth(values, keep) {
  let mean = null;
  return values.map((value) => {
    if (value === null || !keep) return value;
    mean = mean === null ? value : keep * mean + (1 - keep) * value;
    return mean;
  });
}

/** Names of the fields of a kind of record, in the order in which they come. */
export function fields(records, kind) {
  const names = new Set();
  for (const record of records) {
    if (record.kind !== kind) continue;
    for (const [name, value] of Object.entries(record)) {
      if (!["kind", "step", "time", "seed", "said", "path"].includes(name) && (value === null || typeof value === "number")) names.add(name);
    }
  }
  return [...names];
}
