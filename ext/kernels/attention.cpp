// FlashAttention-2: tiles of queries against tiles of keys, the softmax taken online, in both directions; nothing of
// size T x T exists. Key tiles sit at absolute positions (multiples of kKeys), and keys after a query add exact zeros,
// so a row's bits do not depend on T, nor on how many queries are worked on together.
#include "../elementary.h"
#include "../gemm.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int64_t kKeys = 64;                     // keys of a tile
constexpr int64_t kQueries = 128;                 // queries of a forward task, which share packed keys
constexpr int64_t kStrip = kTileM == 5 ? 20 : 16; // queries scored at once in the forward pass
constexpr int64_t kBackQueries = 32;              // the same backward; fixed, since it decides rounding
constexpr int64_t kDiagonal = 8;                  // queries, or keys, of a strip on the diagonal
constexpr int64_t kTaskProducts = int64_t(1) << 16; // less is not worth waking a thread for
constexpr float kNone = -3.0e38f;                 // below every score

PTL_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PTL_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Lanes 0..count-1 of a vector that starts at lane `at`.
PTL_INLINE vi first_lanes(int64_t count, int64_t at) {
  vi lane;
  PTL_UNROLL for (int i = 0; i < W; i++) lane[i] = i;
  return lane < splat_int(int32_t(count - at));
}

PTL_INLINE float scale_of(int64_t D) { return 1.0f / square_root(splat(float(D)))[0]; }

// Floats of n columns in panels of depth k.
constexpr int64_t packed_floats(int64_t k, int64_t n) { return round_up(n, kTileN) / kTileN * panel_floats(k, kTileN); }

// C[m,n] (+)= A . packed panels, k <= kBlockK.
PTL_INLINE void rows_by_panels(int64_t m, int64_t n, int64_t k, const float* a, int64_t as, const float* panels,
                               float* c, int64_t ldc, bool add, int64_t depth) {
  multiply_rows({m, n, k, a, as, kTileM * as, panels, kTileN, panel_floats(depth, kTileN), c, ldc, nullptr, add});
}

// The same with B as it lies, n a multiple of kTileN.
PTL_INLINE void rows_as_they_lie(int64_t m, int64_t n, int64_t k, const float* a, int64_t as, const float* b,
                                 int64_t bs, float* c, int64_t ldc, bool add) {
  const Block block = {m, n, k, a, as, kTileM * as, b, bs, kTileN, c, ldc, nullptr, add};
  if (m <= kFewRows) multiply_few(block);
  else multiply_rows(block);
}

// 16 elements of which the first `count` stay and the others become `other`.
PTL_INLINE Lanes first(Lanes x, int64_t count, float other) {
  for (int q = 0; q < kLanes / W; q++) x.v[q] = select(first_lanes(count, q * W), x.v[q], splat(other));
  return x;
}

// One tile of the online softmax for queries query..query+rows-1: scores become probabilities relative to the running
// maximum, and the running sum and output are rescaled.
void soften(float* scores, int64_t rows, int64_t query, int64_t key, int64_t keys, float scale, float* maximum,
            float* total, float* out, int64_t width) {
  const int64_t span = round_up(keys, kLanes);
  for (int64_t r = 0; r < rows; r++) {
    float* s = scores + r * kKeys;
    const int64_t seen = most(0, least(keys, query + r + 1 - key)), whole = seen / kLanes * kLanes, rest = seen - whole;
    Lanes best;
    for (int q = 0; q < kLanes / W; q++) best.v[q] = splat(kNone);
    for (int64_t i = 0; i < whole; i += kLanes)
      for (int q = 0; q < kLanes / W; q++) best.v[q] = larger(load(s + i + q * W), best.v[q]);
    if (rest) {
      Lanes last = first(load_lanes(s + whole), rest, kNone);
      for (int q = 0; q < kLanes / W; q++) best.v[q] = larger(last.v[q], best.v[q]);
    }
    // Rounding keeps order, so scaling the largest score gives the largest scaled score.
    float before = maximum[r], now = largest(best) * scale;
    now = now > before ? now : before;
    Lanes sums = {};
    for (int64_t i = 0; i < whole; i += kLanes) {
      Lanes p = exp_below_88(load_lanes(s + i) * scale - now);
      store_lanes(s + i, p);
      sums = sums + p;
    }
    if (rest) {
      Lanes p = first(exp_below_88(load_lanes(s + whole) * scale - now), rest, 0.0f);
      store_lanes(s + whole, p);
      sums = sums + p;
    }
    for (int64_t i = round_up(seen, kLanes); i < span; i += kLanes) store_lanes(s + i, Lanes{});
    if (now == before) { // nothing to rescale: e^0 is exactly 1
      total[r] += sum(sums);
      continue;
    }
    float fade = exp_below_88(splat(before - now))[0];
    maximum[r] = now;
    total[r] = total[r] * fade + sum(sums);
    for (int64_t d = 0; d < width; d += W) store(out + r * width + d, load(out + r * width + d) * fade);
  }
}

// One head: queries in rows of `q_row` floats; values from position 0 in rows of `v_row`; keys in rows of `k_row`, or,
// where they lie `across`, as [D, positions]: a column each, so that a few queries take them as they lie.
struct Head {
  const float *q, *k, *v;
  int64_t q_row, k_row, v_row, D;
  bool across;
};

// What a task leaves in its scratch memory: unnormalised outputs, and the softmax's running maximum and sum.
struct Attended {
  float *out, *maximum, *total;
};

// `queries` (at most kQueries) of a head, the first of which stands at position `first`, against every key up to each.
Attended attend(const Head& head, int64_t first, int64_t queries, float* scratch) {
  const int64_t D = head.D, width = round_up(D, kTileN);
  const float scale = scale_of(D);
  float* out = scratch; // [kQueries, width]
  float* keys_packed = out + kQueries * width;
  float* values_packed = keys_packed + packed_floats(D, kKeys);
  float* scores = values_packed + packed_floats(kKeys, width); // [kStrip, kKeys]
  float* maximum = scores + kStrip * kKeys;
  float* total = maximum + kQueries;
  // A few queries read each number once: whole panels are not packed for them.
  const bool few = queries <= 2 * kTileM;
  memset(out, 0, sizeof(float) * size_t(queries * width));
  for (int64_t i = 0; i < queries; i++) maximum[i] = kNone, total[i] = 0.0f;
  for (int64_t key = 0; key < first + queries; key += kKeys) {
    const int64_t keys = least(kKeys, first + queries - key);
    const float* values = head.v + key * head.v_row;
    const float* columns = head.k + key; // of keys that lie across
    const bool keys_direct = few && head.across && key + round_up(keys, kTileN) <= head.k_row;
    const bool values_direct = few && D == width;
    if (!head.across) pack_transposed(head.k + key * head.k_row, head.k_row, D, keys, keys_packed);
    else if (!keys_direct) pack_rows(columns, head.k_row, D, keys, keys_packed);
    if (!values_direct) pack_rows(values, head.v_row, keys, D, values_packed);
    for (int64_t i = most(0, key - first) / kStrip * kStrip; i < queries; i += kStrip) {
      int64_t rows = least(kStrip, queries - i), query = first + i;
      int64_t needed = least(keys, query + rows - key), span = round_up(needed, kTileN);
      if (needed <= 0) continue;
      const float* q = head.q + i * head.q_row;
      if (keys_direct) rows_as_they_lie(rows, span, D, q, head.q_row, columns, head.k_row, scores, kKeys, false);
      else rows_by_panels(rows, span, D, q, head.q_row, keys_packed, scores, kKeys, false, D);
      soften(scores, rows, query, key, needed, scale, maximum + i, total + i, out + i * width, width);
      float* to = out + i * width;
      if (values_direct) rows_as_they_lie(rows, width, needed, scores, kKeys, values, head.v_row, to, width, true);
      else rows_by_panels(rows, width, needed, scores, kKeys, values_packed, to, width, true, keys);
    }
  }
  return {out, maximum, total};
}

// y's rows of a head, `y_row` floats apart.
void normalise(const Attended& made, int64_t queries, int64_t D, float* y, int64_t y_row) {
  const int64_t width = round_up(D, kTileN);
  for (int64_t i = 0; i < queries; i++) {
    float inverse = 1.0f / made.total[i];
    for_each(D, [&](int64_t d, int64_t n) { store(y + i * y_row + d, load(made.out + i * width + d) * inverse, n); });
  }
}

} // namespace

// y = softmax(q k^T / sqrt(D), causal) v for each head; lse[b,h,t] = log-sum-exp of the scaled scores of row t.
void attention(Run& run, int64_t B, int64_t T, int64_t H, int64_t D, const float* qkv, float* y, float* lse) {
  const int64_t C = H * D, row = 3 * C, blocks = (T + kQueries - 1) / kQueries;
  parallel(run, B * H * blocks, [=](int64_t task, float* scratch) {
    // The longest tasks (last queries) go first.
    int64_t block = blocks - 1 - task / (B * H), b = task % (B * H) / H, h = task % H;
    int64_t begin = block * kQueries, queries = least(kQueries, T - begin);
    const float* q = qkv + b * T * row + h * D;
    Attended made = attend({q + begin * row, q + C, q + 2 * C, row, row, row, D, false}, begin, queries, scratch);
    normalise(made, queries, D, y + (b * T + begin) * C + h * D, C);
    for (int64_t i = 0; i < queries; i++)
      lse[(b * H + h) * T + begin + i] = made.maximum[i] + log(made.total[i]);
  });
}
PTL_KERNEL(attention)

namespace {

// From scores and dy v^T to probabilities p and ds = p (dp - delta) scale, in place; keys after a query get zeros.
void soften_backward(float* scores, float* dp, int64_t rows, int64_t query, int64_t key, int64_t keys, float scale,
                     const float* lse, const float* delta) {
  const int64_t span = round_up(keys, kLanes);
  for (int64_t r = 0; r < rows; r++) {
    float* s = scores + r * kKeys;
    float* d = dp + r * kKeys;
    const int64_t seen = most(0, least(keys, query + r + 1 - key)), whole = seen / kLanes * kLanes, rest = seen - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      // A score may exceed lse by rounding, and by more where the forward pass saw infinities.
      Lanes p = exp(load_lanes(s + i) * scale - lse[r]);
      store_lanes(s + i, p);
      store_lanes(d + i, p * (load_lanes(d + i) - delta[r]) * scale);
    }
    if (rest) {
      Lanes p = first(exp(load_lanes(s + whole) * scale - lse[r]), rest, 0.0f);
      store_lanes(s + whole, p);
      store_lanes(d + whole, first(p * (load_lanes(d + whole) - delta[r]) * scale, rest, 0.0f));
    }
    for (int64_t i = round_up(seen, kLanes); i < span; i += kLanes) {
      store_lanes(s + i, Lanes{});
      store_lanes(d + i, Lanes{});
    }
  }
}

} // namespace

// delta = rowsum(dy * y); dv = p^T dy, dk = ds^T q, dq = ds k, with p recomputed tile by tile from lse.
// A task owns a head of a batch entry, so dq adds up over key tiles in order.
void attention_backward(Run& run, int64_t B, int64_t T, int64_t H, int64_t D, const float* qkv, const float* y,
                        const float* lse, const float* dy, float* delta, float* dqkv) {
  const int64_t C = H * D, row = 3 * C, width = round_up(D, kTileN);
  const float scale = scale_of(D);
  parallel(run, B * H, [=](int64_t task, float* scratch) {
    int64_t b = task / H, h = task % H;
    const float* q = qkv + b * T * row + h * D;
    const float* k = q + C;
    const float* v = k + C;
    const float* dout = dy + b * T * C + h * D;
    const float* out = y + b * T * C + h * D;
    float* dq = dqkv + b * T * row + h * D;
    const float* row_lse = lse + task * T;
    float* row_delta = delta + task * T;
    float* k_transposed = scratch; // panels for scores
    float* v_transposed = k_transposed + packed_floats(D, kKeys);
    float* k_packed = v_transposed + packed_floats(D, kKeys); // panels for dq
    float* dk = k_packed + packed_floats(kKeys, width);       // [kKeys, width]
    float* dv = dk + kKeys * width;
    float* q_packed = dv + kKeys * width;
    float* dout_packed = q_packed + packed_floats(kBackQueries, width);
    float* scores = dout_packed + packed_floats(kBackQueries, width); // [kBackQueries, kKeys]
    float* dp = scores + kBackQueries * kKeys;
    for (int64_t t = 0; t < T; t++)
      row_delta[t] =
          sum_of(D, [&](int64_t d, int64_t n) { return load(dout + t * C + d, n) * load(out + t * C + d, n); });
    for (int64_t key = 0; key < T; key += kKeys) {
      int64_t keys = least(kKeys, T - key);
      pack_transposed(k + key * row, row, D, keys, k_transposed);
      pack_transposed(v + key * row, row, D, keys, v_transposed);
      pack_rows(k + key * row, row, keys, D, k_packed);
      for (int64_t i = key; i < T; i += kBackQueries) {
        int64_t rows = least(kBackQueries, T - i), needed = least(keys, i + rows - key);
        pack_rows(q + i * row, row, rows, D, q_packed);
        pack_rows(dout + i * C, C, rows, D, dout_packed);
        // Where queries do not see the whole tile, strips of kDiagonal stop at their last query's key.
        const int64_t step = i < key + kKeys ? kDiagonal : rows;
        for (int64_t r = 0; r < rows; r += step) {
          int64_t strip = least(step, rows - r), span = round_up(least(keys, i + r + strip - key), kTileN);
          rows_by_panels(strip, span, D, q + (i + r) * row, row, k_transposed, scores + r * kKeys, kKeys, false, D);
          rows_by_panels(strip, span, D, dout + (i + r) * C, C, v_transposed, dp + r * kKeys, kKeys, false, D);
        }
        soften_backward(scores, dp, rows, i, key, needed, scale, row_lse + i, row_delta + i);
        for (int64_t r = 0; r < rows; r += step) {
          int64_t strip = least(step, rows - r), reach = least(keys, i + r + strip - key);
          rows_by_panels(strip, D, reach, dp + r * kKeys, kKeys, k_packed, dq + (i + r) * row, row, key > 0, keys);
        }
        if (i == key) { // the first queries may not reach the tile's last keys
          memset(dk, 0, sizeof(float) * size_t(keys * width));
          memset(dv, 0, sizeof(float) * size_t(keys * width));
        }
        for (int64_t c = 0; c < needed; c += step) {
          // Queries before key c do not see it.
          int64_t from = most(0, key + c - i), strip = least(step, needed - c);
          multiply_columns({strip, width, rows - from, scores + from * kKeys + c, kKeys, kTileM,
                            dout_packed + from * kTileN, kTileN, panel_floats(rows, kTileN), dv + c * width, width,
                            nullptr, true});
          multiply_columns({strip, width, rows - from, dp + from * kKeys + c, kKeys, kTileM, q_packed + from * kTileN,
                            kTileN, panel_floats(rows, kTileN), dk + c * width, width, nullptr, true});
        }
      }
      for (int64_t i = 0; i < keys; i++) {
        float* to = dq + (key + i) * row;
        for_each(D, [&](int64_t d, int64_t n) { store(to + C + d, load(dk + i * width + d), n); });
        for_each(D, [&](int64_t d, int64_t n) { store(to + 2 * C + d, load(dv + i * width + d), n); });
      }
    }
  });
}
PTL_KERNEL(attention_backward)

// The new rows of k and v become columns of keys and rows of values at positions position..position+T-1 of the cache;
// then row t attends to keys 0..position+t: the bits that `attention` gives its row position+t.
void attention_cached(Run& run, int64_t T, int64_t H, int64_t D, int64_t P, const float* qkv, const int32_t* position,
                      float* keys, float* values, float* y) {
  const int64_t C = H * D, row = 3 * C, blocks = (T + kQueries - 1) / kQueries, first = position[0];
  if (first < 0 || first + T > P)
    return run.fail("position %lld with T = %lld leaves the cache's 0..%lld", (long long)first, (long long)T,
                    (long long)(P - 1));
  // Several rows to each column while its part of the cache line is at hand.
  parallel_pieces(run, T, 64, [=](int64_t begin, int64_t end, float*) {
    for (int64_t c = 0; c < C; c++)
      for (int64_t t = begin; t < end; t++) keys[c * P + first + t] = qkv[t * row + C + c];
    for (int64_t t = begin; t < end; t++)
      memcpy(values + (first + t) * C, qkv + t * row + 2 * C, sizeof(float) * size_t(C));
  });
  const int64_t work = 2 * least(T, kQueries) * (first + T) * D, piece = (kTaskProducts + work - 1) / work;
  parallel_pieces(run, H * blocks, piece, [=](int64_t task, int64_t end, float* scratch) {
    for (; task < end; task++) {
      int64_t block = blocks - 1 - task / H, h = task % H * D;
      int64_t begin = block * kQueries, queries = least(kQueries, T - begin);
      const Head head = {qkv + begin * row + h, keys + h * P, values + h, row, P, C, D, true};
      normalise(attend(head, first + begin, queries, scratch), queries, D, y + begin * C + h, C);
    }
  });
}
PTL_KERNEL(attention_cached)

} // namespace PTL_ISA
} // namespace ptl
