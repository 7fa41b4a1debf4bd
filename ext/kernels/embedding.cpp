#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

bool tokens_fit(Run& run, const int32_t* tokens, int64_t B, int64_t T, int64_t V) {
  for (int64_t r = 0; r < B * T; r++)
    if (tokens[r] < 0 || tokens[r] >= V) {
      run.fail("token %d at batch %lld, time %lld is outside the vocabulary 0..%lld", int(tokens[r]),
               (long long)(r / T), (long long)(r % T), (long long)(V - 1));
      return false;
    }
  return true;
}

} // namespace

// x[b,t,:] = wte[tokens[b,t],:] + wpe[t,:]
void embedding(Run& run, int64_t B, int64_t T, int64_t C, int64_t V, int64_t P, const int32_t* tokens, const float* wte,
               const float* wpe, float* x) {
  (void)P;
  if (!tokens_fit(run, tokens, B, T, V)) return;
  parallel_pieces(run, B * T, 64, [=](int64_t begin, int64_t end, float*) {
    for (int64_t r = begin; r < end; r++) {
      const float* token = wte + tokens[r] * C;
      const float* position = wpe + r % T * C;
      for_each(C, [&](int64_t c, int64_t n) { store(x + r * C + c, load(token + c, n) + load(position + c, n), n); });
    }
  });
}
PTL_KERNEL(embedding)

// dwte[tokens[b,t],:] += dx[b,t,:], dwpe[t,:] += sum over b of dx[b,t,:]. Tasks own channels, so rows of one token add
// up in order and without atomics.
void embedding_backward(Run& run, int64_t B, int64_t T, int64_t C, int64_t V, int64_t P, const int32_t* tokens,
                        const float* dx, float* dwte, float* dwpe) {
  (void)P;
  if (!tokens_fit(run, tokens, B, T, V)) return;
  parallel_pieces(run, C, 16, [=](int64_t begin, int64_t end, float*) {
    for (int64_t r = 0; r < B * T; r++) {
      float* token = dwte + tokens[r] * C + begin;
      float* position = dwpe + r % T * C + begin;
      for_each(end - begin, [&](int64_t c, int64_t n) {
        vf row = load(dx + r * C + begin + c, n);
        store(token + c, load(token + c, n) + row, n);
        store(position + c, load(position + c, n) + row, n);
      });
    }
  });
}
PTL_KERNEL(embedding_backward)

// x[b,t,:] = wte[tokens[b,t],:] + wpe[position + t,:]
void embedding_at(Run& run, int64_t B, int64_t T, int64_t C, int64_t V, int64_t P, const int32_t* tokens,
                  const int32_t* position, const float* wte, const float* wpe, float* x) {
  const int64_t first = position[0];
  if (first < 0 || first + T > P)
    return run.fail("position %lld with T = %lld leaves the table's 0..%lld", (long long)first, (long long)T,
                    (long long)(P - 1));
  embedding(run, B, T, C, V, P - first, tokens, wte, wpe + first * C, x);
}
PTL_KERNEL(embedding_at)

} // namespace PTL_ISA
} // namespace ptl
