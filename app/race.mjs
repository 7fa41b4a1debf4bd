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

/** In squares that stay in the first cache, and inside them 4 × 4 results at a time. n is a multiple of the tile, the tile of 4. */
export function tiled(n, repeats, tile = 64) {
  return timed(n, repeats, (a, b, c, size) => {
    for (let ii = 0; ii < size; ii += tile) for (let kk = 0; kk < size; kk += tile) for (let jj = 0; jj < size; jj += tile) {
      for (let i = ii; i < ii + tile; i += 4) for (let j = jj; j < jj + tile; j += 4) block(a, b, c, size, i, j, kk, kk + tile);
    }
  });
}

/** Sixteen sums, each in a variable of its own: an array of them would be memory again. Eight numbers fetched serve 16 products. */
function block(a, b, c, n, i, j, first, last) {
  let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
  let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
  const row0 = i * n, row1 = row0 + n, row2 = row1 + n, row3 = row2 + n;
  for (let k = first; k < last; k++) {
    const at = k * n + j;
    const b0 = b[at], b1 = b[at + 1], b2 = b[at + 2], b3 = b[at + 3];
    const a0 = a[row0 + k], a1 = a[row1 + k], a2 = a[row2 + k], a3 = a[row3 + k];
    s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2; s03 += a0 * b3;
    s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2; s13 += a1 * b3;
    s20 += a2 * b0; s21 += a2 * b1; s22 += a2 * b2; s23 += a2 * b3;
    s30 += a3 * b0; s31 += a3 * b1; s32 += a3 * b2; s33 += a3 * b3;
  }
  add(c, row0 + j, s00, s01, s02, s03);
  add(c, row1 + j, s10, s11, s12, s13);
  add(c, row2 + j, s20, s21, s22, s23);
  add(c, row3 + j, s30, s31, s32, s33);
}

function add(c, at, s0, s1, s2, s3) { c[at] += s0; c[at + 1] += s1; c[at + 2] += s2; c[at + 3] += s3; }
