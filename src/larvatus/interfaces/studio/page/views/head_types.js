// Kinds of attention heads (Clark et al. 2019): what each looks at, its sign and its colour.

export const TYPES = {
  self: { sign: "=", series: 1, says: "looks at the token itself" },
  previous: { sign: "←", series: 2, says: "looks at the token before" },
  next: { sign: "→", series: 3, says: "looks at the token after" },
  cls: { sign: "c", series: 4, says: "looks at the opening token" },
  separator: { sign: "s", series: 5, says: "looks at the separator" },
  punctuation: { sign: ".", series: 7, says: "looks at punctuation" },
  broad: { sign: "b", series: 6, says: "looks at all tokens alike" },
  mixed: { sign: "m", series: 8, says: "looks at no single kind of token" },
};

export const typeOf = (name) => TYPES[name] ?? { sign: "?", series: 8, says: name };

/** The class that gives an element the colour of a type. */
export const typeClass = (name) => `series-${typeOf(name).series}`;
