#include "../elementary.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

PTL_INLINE int64_t rows_per_task(int64_t V) { return V >= 16384 ? 1 : 16384 / V; }

bool targets_fit(Run& run, const int32_t* targets, int64_t R, int64_t V) {
  for (int64_t r = 0; r < R; r++)
    if (targets[r] >= V) {
      run.fail("target %d at row %lld is outside the vocabulary 0..%lld", int(targets[r]), (long long)r,
               (long long)(V - 1));
      return false;
    }
  return true;
}

PTL_INLINE float largest_of(const float* row, int64_t n) {
  float most = row[0];
  int64_t i = 0;
  if (n >= kLanes) {
    Lanes best = load_lanes(row);
    for (i = kLanes; i + kLanes <= n; i += kLanes)
      for (int q = 0; q < kLanes / W; q++) best.v[q] = larger(load(row + i + q * W), best.v[q]);
    most = largest(best);
  }
  for (; i < n; i++) most = row[i] > most ? row[i] : most;
  return most;
}

// dlogits = scale(row) * (softmax - onehot), 0 for ignored rows
template <class Scale>
PTL_INLINE void write_dlogits(Run& run, int64_t R, int64_t V, const float* logits, const int32_t* targets,
                              const float* lse, float* dlogits, Scale scale_of) {
  parallel_pieces(run, R, rows_per_task(V), [=](int64_t begin, int64_t end, float*) {
    for (int64_t r = begin; r < end; r++) {
      const float* row = logits + r * V;
      float* drow = dlogits + r * V;
      if (targets[r] < 0) {
        for_each(V, [&](int64_t v, int64_t n) { store(drow + v, vf{}, n); });
        continue;
      }
      const float scale = scale_of(r);
      for_each(V, [&](int64_t v, int64_t n) { store(drow + v, scale * exp(load(row + v, n) - lse[r]), n); });
      drow[targets[r]] -= scale;
    }
  });
}

} // namespace

// losses = log-sum-exp of the row - its target's logit, 0 where target < 0; loss = {mean over counted rows, their
// number}
void cross_entropy(Run& run, int64_t R, int64_t V, const float* logits, const int32_t* targets, float* losses,
                   float* lse, float* loss) {
  if (!targets_fit(run, targets, R, V)) return;
  parallel_pieces(run, R, rows_per_task(V), [=](int64_t begin, int64_t end, float*) {
    for (int64_t r = begin; r < end; r++) {
      const float* row = logits + r * V;
      float most = largest_of(row, V);
      lse[r] = most + log(sum_of(V, [&](int64_t v, int64_t n) { return exp(load(row + v, n) - most); }));
      losses[r] = targets[r] < 0 ? 0.0f : lse[r] - row[targets[r]];
    }
  });
  int64_t counted = 0;
  for (int64_t r = 0; r < R; r++) counted += targets[r] >= 0;
  float total = sum_of(R, [&](int64_t r, int64_t n) { return load(losses + r, n); });
  loss[0] = counted ? total / float(counted) : 0.0f;
  loss[1] = float(counted);
}
PTL_KERNEL(cross_entropy)

// dlogits = dloss / count * (softmax - onehot), 0 for ignored rows
void cross_entropy_backward(Run& run, int64_t R, int64_t V, const float* logits, const int32_t* targets,
                            const float* lse, const float* loss, const float* dloss, float* dlogits) {
  if (!targets_fit(run, targets, R, V)) return;
  float scale = loss[1] > 0.0f ? dloss[0] / loss[1] : 0.0f;
  write_dlogits(run, R, V, logits, targets, lse, dlogits, [=](int64_t) { return scale; });
}
PTL_KERNEL(cross_entropy_backward)

// dlogits = dlosses of the row * (softmax - onehot), 0 for ignored rows
void cross_entropy_backward_rows(Run& run, int64_t R, int64_t V, const float* logits, const int32_t* targets,
                                 const float* lse, const float* dlosses, float* dlogits) {
  if (!targets_fit(run, targets, R, V)) return;
  write_dlogits(run, R, V, logits, targets, lse, dlogits, [=](int64_t r) { return dlosses[r]; });
}
PTL_KERNEL(cross_entropy_backward_rows)

} // namespace PTL_ISA
} // namespace ptl
