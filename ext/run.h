// What a kernel sees of the engine: parallel tasks, scratch memory, and a way to fail. Nothing here is an inline
// function of the common namespace: each build's copy would be compiled with that build's instructions and the linker
// would keep only one of them.
#pragma once
#include <stdint.h>

namespace ptl {

class Pool;

// Bytes of scratch per thread; ext/gemm.h and ext/kernels/attention.cpp say how much they use.
constexpr int64_t kThreadScratchBytes = int64_t(768) << 10;
// Shared by all threads; ext/gemm.cpp, ext/kernels/layernorm.cpp and ext/kernels/lora.cpp use it.
constexpr int64_t kSharedScratchBytes = (int64_t(1) << 20) + (int64_t(1) << 16);
constexpr int64_t kMaxHeadWidth = 256;
constexpr int64_t kMostRank = 4096; // of an adapter: shared scratch holds some columns of its gradient

struct Run {
  Pool* pool;
  int threads;
  char* thread_scratch;  // kThreadScratchBytes for each thread, 64-byte aligned
  float* shared_scratch; // kSharedScratchBytes
  int failed;
  char message[200];

  void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void parallel(int64_t count, void (*task)(void* context, int64_t task, int thread), void* context);
};

// body(task, scratch): task = 0..count-1, scratch = this thread's, of kThreadScratchBytes. Bodies capture by value.
#define PTL_PARALLEL_INLINE static inline __attribute__((always_inline))
template <class Body> PTL_PARALLEL_INLINE void parallel(Run& run, int64_t count, Body body) {
  struct Context {
    Body* body;
    char* scratch;
  } context{&body, run.thread_scratch};
  run.parallel(
      count,
      [](void* opaque, int64_t task, int thread) {
        Context& c = *static_cast<Context*>(opaque);
        Body own = *c.body; // a copy no store of a kernel can alias, so what it captured stays in registers
        own(task, reinterpret_cast<float*>(c.scratch + thread * kThreadScratchBytes));
      },
      &context);
}

// The same over 0..n-1 in pieces of `piece`: body(begin, end, scratch).
template <class Body> PTL_PARALLEL_INLINE void parallel_pieces(Run& run, int64_t n, int64_t piece, Body body) {
  parallel(run, (n + piece - 1) / piece, [=](int64_t task, float* scratch) {
    int64_t begin = task * piece;
    body(begin, begin + piece < n ? begin + piece : n, scratch);
  });
}

} // namespace ptl
