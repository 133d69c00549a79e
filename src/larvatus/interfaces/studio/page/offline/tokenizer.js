// A tokenizer.json in JavaScript: the ids and characters that the `tokenizers` library gives.
//
//   const tokenizer = makeTokenizer(settings, classes);
//   tokenizer.encode("the river")     // {ids: [5, 17], spans: [[0, 3], [3, 9]]}, spans in code points
//
// A step maps a piece (characters, and where in the text each comes from) to a piece, or to several. Python refuses to
// export a tokenizer with a step that is not in these tables (`offline_tokenizer.py`). `classes` are the punctuation,
// the accents, the unseen and the undivided characters of the library, whose Unicode is older than that of browsers.

const piece = (chars, from, to) => ({ chars, from, to });
const whole = (text) => {
  const chars = Array.from(text);
  return piece(chars, chars.map((_, n) => n), chars.map((_, n) => n + 1));
};
const cut = ({ chars, from, to }, start, end) => piece(chars.slice(start, end), from.slice(start, end), to.slice(start, end));
const kept = (it, keep) => {
  const places = it.chars.flatMap((char, n) => (keep(char) ? [n] : []));
  return piece(places.map((n) => it.chars[n]), places.map((n) => it.from[n]), places.map((n) => it.to[n]));
};
/** Each character replaced by some: they come from where it came from. */
const spread = (it, replace) => {
  const made = piece([], [], []);
  it.chars.forEach((char, n) => {
    for (const each of replace(char, n)) made.chars.push(each), made.from.push(it.from[n]), made.to.push(it.to[n]);
  });
  return made;
};

// — Unicode normal forms, with the places of characters: NFD and NFKD spread a character, NFC and NFKC join some.

const reorders = (a, b) => (a + b).normalize("NFD") !== a + b; // combining class of a above that of b, which is not 0
const starters = new Map();
function starter(char) {
  if (!starters.has(char)) starters.set(char, char < "\u0300" || (!reorders(char, "\u0334") && !reorders("\u0345", char)));
  return starters.get(char);
}

/** [character, change]: change 1 where a character has more than one, else 0; marks in canonical order. */
function decomposed(chars, form, undivided) {
  const made = [];
  let run = [];
  const flush = () => {
    for (let i = 1; i < run.length; i++) for (let j = i; j > 0 && reorders(run[j - 1][0], run[j][0]); j--) [run[j - 1], run[j]] = [run[j], run[j - 1]];
    made.push(...run);
    run = [];
  };
  for (const char of chars) {
    Array.from(undivided.has(char) ? char : char.normalize(form)).forEach((each, n) => {
      if (starter(each)) flush(), made.push([each, n ? 1 : 0]);
      else run.push([each, n ? 1 : 0]);
    });
  }
  flush();
  return made;
}

function composed(pairs) {
  const made = [];
  let at = -1; // the starter that later characters may join
  let last = null; // the mark before that did not join
  for (const [char, change] of pairs) {
    const single = starter(char);
    if (at >= 0 && (last === null || (!single && reorders(char, last)))) {
      const joined = Array.from((made[at][0] + char).normalize("NFC"));
      if (joined.length === 1) {
        made[at] = [joined[0], made[at][1] + change - 1];
        continue;
      }
    }
    if (single) (at = made.length), (last = null);
    else if (at >= 0) last = char;
    made.push([char, change]);
  }
  return made;
}

/** Characters after a change, placed as the library places them: a new one where the last old one was. */
function placed(it, pairs) {
  const made = piece([], [], []);
  let next = 0;
  for (const [char, change] of pairs) {
    const n = change > 0 ? next - 1 : next;
    made.chars.push(char);
    made.from.push(it.from[n] ?? 0);
    made.to.push(it.to[n] ?? 0);
    if (change <= 0) next += 1 - change;
  }
  return made;
}

const normalForm = (form) => (_, { undivided }) => (it) => {
  const text = it.chars.join("");
  if (text.normalize(form) === text) return it;
  const pairs = decomposed(it.chars, form.replace(/C$/, "D"), undivided);
  return placed(it, form.endsWith("C") ? composed(pairs) : pairs);
};

// — normalizers

const HAN = /[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{f900}-\u{faff}\u{2f800}-\u{2fa1f}]/u;
const SPACE = /\p{White_Space}/u;
const NMT_GONE = /[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]/;
const NMT_SPACE = /[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/;
const lowered = (it) => spread(it, (char) => Array.from(char.toLowerCase()));

const NORMALIZERS = {
  Sequence: ({ normalizers }, classes) => normalizers.map((step) => NORMALIZERS[step.type](step, classes)).reduce((first, then) => (it) => then(first(it)), (it) => it),
  NFC: normalForm("NFC"),
  NFD: normalForm("NFD"),
  NFKC: normalForm("NFKC"),
  NFKD: normalForm("NFKD"),
  Lowercase: () => lowered,
  StripAccents: (_, { marks }) => (it) => kept(it, (char) => !marks.has(char)),
  Nmt: () => (it) => spread(kept(it, (char) => !NMT_GONE.test(char)), (char) => [NMT_SPACE.test(char) ? " " : char]),
  Replace: ({ pattern, content }) => (it) => replaced(it, new RegExp(pattern.Regex ?? escaped(pattern.String), "gu"), content),
  BertNormalizer: ({ clean_text, handle_chinese_chars, strip_accents, lowercase }, classes) => (it) => {
    const { unseen, accents } = classes;
    if (clean_text) it = spread(kept(it, (char) => !unseen.has(char) && !/\p{Co}/u.test(char)), (char) => [SPACE.test(char) ? " " : char]);
    if (handle_chinese_chars) it = spread(it, (char) => (HAN.test(char) ? [" ", char, " "] : [char]));
    if (strip_accents ?? lowercase) it = kept(normalForm("NFD")(null, classes)(it), (char) => !accents.has(char));
    return lowercase ? lowered(it) : it;
  },
};
const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");

/** Matches of a pattern: [start, end] in characters. */
function matches(it, pattern) {
  const units = [0]; // where each character begins in the string
  for (const char of it.chars) units.push(units.at(-1) + char.length);
  const places = new Map(units.map((unit, n) => [unit, n]));
  return [...it.chars.join("").matchAll(pattern)].map((match) => [places.get(match.index), places.get(match.index + match[0].length)]);
}

function replaced(it, pattern, content) {
  const made = piece([], [], []);
  let place = 0;
  const add = (part) => (made.chars.push(...part.chars), made.from.push(...part.from), made.to.push(...part.to));
  for (const [start, end] of matches(it, pattern)) {
    add(cut(it, place, start));
    add(spread(cut(it, end - 1, end), () => Array.from(content))); // new characters are placed at the last that is gone
    place = end;
  }
  add(cut(it, place));
  return made;
}

// — pre-tokenizers: a piece becomes several

const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const BYTES = Array.from({ length: 256 }, (_, byte) => byte);
const shown = (byte) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
const hidden = BYTES.filter((byte) => !shown(byte));
const BYTE_CHARS = BYTES.map((byte) => String.fromCodePoint(shown(byte) ? byte : 256 + hidden.indexOf(byte)));
const utf8 = new TextEncoder();

/** The pieces between matches and the matches: those are left out where `drop`. */
function split(it, pattern, drop = false) {
  const made = [];
  let place = 0;
  for (const [start, end] of matches(it, pattern)) {
    made.push(cut(it, place, start), ...(drop ? [] : [cut(it, start, end)]));
    place = end;
  }
  return [...made, cut(it, place)].filter(({ chars }) => chars.length);
}

/** A character before a piece; it comes from where the first one came from. */
const opened = (it, char) => (it.chars.length && it.chars[0] !== char ? piece([char, ...it.chars], [it.from[0], ...it.from], [it.to[0], ...it.to]) : it);

const PRE_TOKENIZERS = {
  Sequence: ({ pretokenizers }, classes) => pretokenizers.map((step) => PRE_TOKENIZERS[step.type](step, classes)).reduce((first, then) => (it) => first(it).flatMap(then), (it) => [it]),
  BertPreTokenizer: (_, { punctuation }) => (it) => split(it, /\p{White_Space}/gu, true).flatMap((word) => split(word, new RegExp(`[${escaped([...punctuation].join(""))}]`, "gu"))),
  WhitespaceSplit: () => (it) => split(it, /\p{White_Space}/gu, true),
  Split: ({ pattern }) => (it) => split(it, new RegExp(pattern.Regex?.replaceAll("\\d", "\\p{Nd}") ?? escaped(pattern.String), "gu")),
  ByteLevel: ({ add_prefix_space, use_regex }) => (it) => {
    const parts = use_regex === false ? [it] : split(add_prefix_space ? opened(it, " ") : it, WORDS);
    return parts.map((part) => spread(part, (char) => Array.from(utf8.encode(char), (byte) => BYTE_CHARS[byte])));
  },
  Metaspace: ({ replacement, prepend_scheme, split: cuts }) => (it) => {
    const marked = spread(it, (char) => [char === " " ? replacement : char]);
    const first = prepend_scheme === "always" || (prepend_scheme === "first" && it.from[0] === 0);
    const text = first ? opened(marked, replacement) : marked;
    return cuts === false ? [text] : split(text, new RegExp(`${escaped(replacement)}?[^${escaped(replacement)}]*`, "gu"));
  },
};

// — models: the characters of a piece become tokens, [id, start, end]

function wordPiece({ vocab, unk_token, continuing_subword_prefix: prefix, max_input_chars_per_word: most }) {
  const ids = new Map(Object.entries(vocab));
  return (chars) => {
    const unknown = [[ids.get(unk_token), 0, chars.length]];
    if (chars.length > most) return unknown;
    const tokens = [];
    for (let start = 0; start < chars.length; ) {
      let end = chars.length;
      const named = () => (start ? prefix : "") + chars.slice(start, end).join("");
      while (end > start && !ids.has(named())) end--;
      if (end === start) return unknown;
      tokens.push([ids.get(named()), start, end]);
      start = end;
    }
    return tokens;
  };
}

function bytePair({ vocab, merges, unk_token, end_of_word_suffix: suffix, ignore_merges }) {
  const ids = new Map(Object.entries(vocab));
  const ranks = new Map(merges.map((pair, rank) => [Array.isArray(pair) ? pair.join(" ") : pair, rank]));
  return (chars) => {
    if (ignore_merges && ids.has(chars.join(""))) return [[ids.get(chars.join("")), 0, chars.length]];
    const parts = chars.flatMap((char, n) => {
      const named = suffix && n === chars.length - 1 ? char + suffix : char;
      return ids.has(named) ? [[named, n, n + 1]] : unk_token ? [[unk_token, n, n + 1]] : [];
    });
    for (;;) {
      let best = Infinity;
      let at = -1;
      for (let n = 1; n < parts.length; n++) {
        const rank = ranks.get(`${parts[n - 1][0]} ${parts[n][0]}`) ?? Infinity;
        if (rank < best) (best = rank), (at = n);
      }
      if (at < 0) return parts.map(([name, start, end]) => [ids.get(name), start, end]);
      parts.splice(at - 1, 2, [parts[at - 1][0] + parts[at][0], parts[at - 1][1], parts[at][2]]);
    }
  };
}

const UNKNOWN_PENALTY = 10;

/** The most probable pieces (Viterbi); neighbours that are unknown are one token. */
function unigram({ vocab, unk_id }) {
  const ids = new Map(vocab.map(([name], id) => [name, id]));
  const longest = vocab.reduce((most, [name]) => Math.max(most, Array.from(name).length), 1);
  const unknown = vocab.reduce((least, [, score]) => Math.min(least, score), Infinity) - UNKNOWN_PENALTY;
  return (chars) => {
    const best = chars.map(() => null);
    const reach = (end, score, start, id) => {
      if (!best[end - 1] || score > best[end - 1].score) best[end - 1] = { score, start, id };
    };
    for (let start = 0; start < chars.length; start++) {
      const before = start ? best[start - 1].score : 0;
      for (let end = start + 1, name = ""; end <= Math.min(chars.length, start + longest); end++) {
        name += chars[end - 1];
        if (ids.has(name)) reach(end, vocab[ids.get(name)][1] + before, start, ids.get(name));
      }
      if (!ids.has(chars[start])) reach(start + 1, unknown + before, start, unk_id);
    }
    const tokens = [];
    for (let end = chars.length; end > 0; end = best[end - 1].start) {
      const { start, id } = best[end - 1];
      if (id === unk_id && tokens[0]?.[0] === unk_id) tokens[0][1] = start;
      else tokens.unshift([id, start, end]);
    }
    return tokens;
  };
}

const MODELS = { WordPiece: wordPiece, BPE: bytePair, Unigram: unigram };

/** {encode(text) → {ids, spans}}; special tokens that are written in a text are read as text. */
export function makeTokenizer(settings, classes) {
  const sets = Object.fromEntries(Object.entries(classes).map(([name, chars]) => [name, new Set(chars)]));
  const normalise = settings.normalizer ? NORMALIZERS[settings.normalizer.type](settings.normalizer, sets) : (it) => it;
  const cuts = settings.pre_tokenizer ? PRE_TOKENIZERS[settings.pre_tokenizer.type](settings.pre_tokenizer, sets) : (it) => [it];
  const tokenise = MODELS[settings.model.type](settings.model);
  const special = settings.added_tokens.filter((token) => token.special);
  const unknown = settings.model.unk_token ?? settings.model.vocab[settings.model.unk_id]?.[0];
  const suspect = new Set(special.filter(({ content }) => content !== unknown).map(({ id }) => id));
  const lasts = [...new Set(special.map(({ content }) => Array.from(content).at(-1)))].sort();
  const misread = (text, ids) => ids.some((id) => suspect.has(id)) || (settings.model.type === "Unigram" && text.includes(unknown));

  function encoded(text, pieces) {
    const found = pieces.flatMap((it) => tokenise(it.chars).map(([id, start, end]) => ({ id, span: [it.from[start], it.to[end - 1]] })));
    let [low, high] = [0, 0]; // spans never go backwards
    return { ids: found.map(({ id }) => id), spans: found.map(({ span }) => [(low = Math.max(low, span[0])), (high = Math.max(high, span[1]))]) };
  }

  return {
    encode(text) {
      if (/\p{Cs}/u.test(text)) throw new Error("The text holds half a character; remove it.");
      const pieces = cuts(normalise(whole(text)));
      const plain = encoded(text, pieces);
      if (!misread(text, plain.ids)) return plain;
      const again = encoded(text, lasts.reduce((list, last) => list.flatMap((it) => split(it, new RegExp(escaped(last), "gu"))), pieces));
      if (again.ids.some((id) => suspect.has(id))) throw new Error("A special token written out in the text cannot be read as text by this vocabulary; remove it.");
      return again;
    },
  };
}
