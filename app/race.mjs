// The slow contestants of the race in the lesson on tiles: products of square matrices in plain JavaScript, compiled by the
// browser like anything else here. Each returns its best seconds of `repeats`.

function matrices(n) {
  const a = new Float32Array(n * n), b = new Float32Array(n * n), c = new Float32Array(n * n);
  for (let at = 0; at < n * n; at++) { a[at] = (at % 17) * 0.125 - 1; b[at] = (at % 13) * 0.125 - 0.75; }
  return [a, b, c];
}

function timed(n, repeats, work) {
  const [a, b, c] = matrices(n);
  let best = Infinity;
  for (let turn = 0; turn < repeats; turn++) {
    c.fill(0);
    const start = performance.now();
    work(a, b, c, n);
    best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}

/** One result after another: a row of a against a column of b. */
export function naive(n, repeats) {
  return timed(n, repeats, (a, b, c, size) => {
    for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
      let sum = 0;
      for (let k = 0; k < size; k++) sum += a[i * size + k] * b[k * size + j];
      c[i * size + j] = sum;
    }
  });
}

/** In squares that stay in the first cache, row by row inside them. */
export function tiled(n, repeats, tile = 64) {
  return timed(n, repeats, (a, b, c, size) => {
    for (let ii = 0; ii < size; ii += tile) for (let kk = 0; kk < size; kk += tile) for (let jj = 0; jj < size; jj += tile) {
      const lastI = Math.min(ii + tile, size), lastK = Math.min(kk + tile, size), lastJ = Math.min(jj + tile, size);
      for (let i = ii; i < lastI; i++) for (let k = kk; k < lastK; k++) {
        const value = a[i * size + k], row = k * size, out = i * size;
        for (let j = jj; j < lastJ; j++) c[out + j] += value * b[row + j];
      }
    }
  });
}
