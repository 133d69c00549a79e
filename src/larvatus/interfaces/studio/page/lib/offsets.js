// Places of characters as the server counts them, by code points, in the texts of JavaScript, which count otherwise:
// an emoji is one character there and two here.
//
//   const at = codePoints("🙂 hi");   at.slice(0, 1)   // "🙂"

/** Cuts a text at places counted in code points. */
export function codePoints(text) {
  const points = Array.from(text);
  return {
    length: points.length,
    slice: (start, end) => points.slice(start, end).join(""),
  };
}

/** A text in pieces at all borders of spans: [{text, start, end, spans: [those that cover it]}]. Spans may nest and cross. */
export function pieces(text, spans) {
  const at = codePoints(text);
  const sound = spans.filter((span) => Number.isInteger(span.start) && Number.isInteger(span.end) && span.start < span.end);
  const borders = new Set([0, at.length]);
  for (const span of sound) {
    borders.add(Math.max(0, Math.min(at.length, span.start)));
    borders.add(Math.max(0, Math.min(at.length, span.end)));
  }
  const places = [...borders].sort((a, b) => a - b);
  return places.slice(0, -1).map((start, number) => {
    const end = places[number + 1];
    return { text: at.slice(start, end), start, end, spans: sound.filter((span) => span.start <= start && end <= span.end) };
  });
}

/** The height of each span's bracket, from 0 next to the text: a span lies above all shorter ones that it meets. */
export function levels(spans) {
  const order = spans.map((span, index) => ({ span, index })).sort((a, b) => a.span.end - a.span.start - (b.span.end - b.span.start) || a.span.start - b.span.start);
  const result = new Array(spans.length).fill(0);
  const placed = [];
  for (const { span, index } of order) {
    const met = placed.filter((other) => other.span.start < span.end && span.start < other.span.end);
    result[index] = met.length ? 1 + Math.max(...met.map((other) => result[other.index])) : 0;
    placed.push({ span, index });
  }
  return result;
}
