// Groups and points of a few dozen unit vectors, as /v1/senses of the server computes them.

const MOST = 8; // clusters that are tried
const WORTHWHILE = 0.1; // least silhouette
const ROUNDS = 500;

/** The cluster of each vector, 0 the largest: agglomerative by mean cosine; the best silhouette where no count is given. */
export function clusters(cosines, count = null) {
  const apart = cosines.map((row, i) => row.map((cosine, j) => (i === j ? 0 : Math.max(0, Math.min(2, 1 - cosine)))));
  const most = count === null ? Math.min(MOST, apart.length - 1) : Math.min(count, apart.length);
  const found = merged(apart, most);
  if (count !== null) return bySize(found.get(most));
  const scores = [...found].filter(([k]) => k > 1).map(([k, numbers]) => [silhouette(apart, numbers), k]);
  const [score, best] = scores.sort((a, b) => b[0] - a[0] || a[1] - b[1])[0] ?? [0, 1];
  return best === 1 || score < WORTHWHILE ? apart.map(() => 0) : bySize(found.get(best));
}

/** Clusterings by their number of clusters: the two nearest are merged again and again. */
function merged(apart, most) {
  const table = apart.map((row, i) => row.map((distance, j) => (i === j ? Infinity : distance)));
  const sizes = apart.map(() => 1);
  let numbers = apart.map((_, n) => n);
  const found = new Map();
  for (let count = apart.length; count > 0; count--) {
    if (count <= Math.max(1, most)) found.set(count, numbers);
    if (count === 1) break;
    let [a, b] = [0, 1];
    table.forEach((row, i) => row.forEach((distance, j) => i < j && distance < table[a][b] && ([a, b] = [i, j])));
    table.forEach((row, n) => {
      if (n === a || n === b) return;
      row[a] = table[a][n] = (sizes[a] * table[a][n] + sizes[b] * table[b][n]) / (sizes[a] + sizes[b]);
    });
    table.forEach((row, n) => (row[b] = table[b][n] = Infinity));
    sizes[a] += sizes[b];
    numbers = numbers.map((number) => (number === b ? a : number));
  }
  return found;
}

function bySize(numbers) {
  const names = [...new Set(numbers)];
  const size = (name) => numbers.filter((number) => number === name).length;
  const order = names.sort((a, b) => size(b) - size(a) || numbers.indexOf(a) - numbers.indexOf(b));
  return numbers.map((number) => order.indexOf(number));
}

function silhouette(apart, numbers) {
  const scores = numbers.map((own, i) => {
    const means = new Map([...new Set(numbers)].map((name) => {
      const others = numbers.flatMap((number, j) => (number === name && j !== i ? [apart[i][j]] : []));
      return [name, others.length ? others.reduce((a, b) => a + b) / others.length : null];
    }));
    const within = means.get(own);
    means.delete(own);
    const next = Math.min(...means.values());
    return within === null ? 0 : (next - within) / Math.max(next, within, 1e-12);
  });
  return scores.reduce((a, b) => a + b) / scores.length;
}

/** The two first principal components of each vector, by power iteration on their products; the largest loading is positive. */
export function planeOf(vectors) {
  const mean = vectors[0].map((_, d) => vectors.reduce((sum, vector) => sum + vector[d], 0) / vectors.length);
  const centred = vectors.map((vector) => vector.map((value, d) => value - mean[d]));
  const product = (a, b) => a.reduce((sum, value, n) => sum + value * b[n], 0);
  const gram = centred.map((a) => centred.map((b) => product(a, b)));
  const found = [];
  for (let axis = 0; axis < 2; axis++) {
    let u = gram.map((_, n) => Math.cos(n * (axis + 1) + 1));
    for (let round = 0; round < ROUNDS; round++) {
      u = gram.map((row) => product(row, u));
      for (const other of found) u = u.map((value, n) => value - product(u, other) * other[n]);
      const length = Math.hypot(...u);
      if (length < 1e-12) break; // all the same
      u = u.map((value) => value / length);
    }
    found.push(u);
  }
  const coordinates = found.map((u) => {
    const loading = mean.map((_, d) => u.reduce((sum, value, n) => sum + value * centred[n][d], 0));
    const scale = Math.hypot(...loading);
    const sign = Math.sign(loading.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0));
    return u.map((value) => sign * scale * value);
  });
  return vectors.map((_, n) => [coordinates[0][n], coordinates[1][n]]);
}
