// Shades between two colours of the theme, and small pictures of matrices on a canvas.

import { colour } from "./theme.js";

const channels = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));

/** A function of 0 … 1 that gives [r, g, b] between --heat-0 and --heat-1, or another colour of the theme. */
export function ramp(to = "--heat-1") {
  const low = channels(colour("--heat-0"));
  const high = channels(colour(to));
  return (part) => {
    const share = Math.max(0, Math.min(1, part));
    return low.map((value, n) => Math.round(value + (high[n] - value) * share));
  };
}

/** Paints a matrix, a pixel for each number, by √ of its values so that small weights show. */
export function paint(canvas, matrix) {
  const shade = ramp();
  const rows = matrix.length;
  const columns = rows ? matrix[0].length : 0;
  canvas.width = columns;
  canvas.height = rows;
  if (!rows || !columns) return;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(columns, rows);
  matrix.forEach((row, i) =>
    row.forEach((value, j) => {
      const [r, g, b] = shade(Math.sqrt(value));
      image.data.set([r, g, b, 255], 4 * (i * columns + j));
    }),
  );
  pen.putImageData(image, 0, 0);
}

/** The text colour that is readable on a shade: dark or light, whichever has more contrast. */
export function readableOn([r, g, b]) {
  const light = (value) => {
    const part = value / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const luminance = 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#000000" : "#ffffff";
}
