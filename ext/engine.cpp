#include "engine.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <new>

#include "engine_state.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
#define PTL_HUGE_PAGES 1
#include <sys/mman.h>
#endif

namespace ptl {

#if defined(__wasm__)
namespace wasm {
extern const Build build;
}
#elif defined(__x86_64__)
namespace avx512 {
extern const Build build;
}
namespace avx2 {
extern const Build build;
}
namespace sse2 {
extern const Build build;
}
#else
namespace neon {
extern const Build build;
}
#endif

void Run::fail(const char* format, ...) {
  failed = 1;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
}

void Run::parallel(int64_t count, void (*task)(void*, int64_t, int), void* context) { pool->run(count, task, context); }

namespace {

constexpr int kMostThreads = 64;
constexpr int64_t kAlignment = 256;
#if PTL_HUGE_PAGES
constexpr int64_t kHugePage = int64_t(1) << 21;
#endif

// The widest build first; isa == nullptr takes the first this host runs.
const Build* choose(const char* isa) {
#if defined(__wasm__)
  const Build* builds[] = {&wasm::build};
  bool runs[] = {true};
#elif defined(__x86_64__)
  __builtin_cpu_init();
  const Build* builds[] = {&avx512::build, &avx2::build, &sse2::build};
  bool runs[] = {__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"),
                 bool(__builtin_cpu_supports("avx2")), true};
#else
  const Build* builds[] = {&neon::build};
  bool runs[] = {true};
#endif
  for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++)
    if (runs[i] && (!isa || !strcmp(isa, builds[i]->name))) return builds[i];
  return nullptr;
}

// Zero-filled, aligned to kAlignment; empty when out of memory.
std::shared_ptr<char> zeros(int64_t bytes) {
  const uint64_t most = sizeof(void*) == 4 ? uint64_t(SIZE_MAX) - kAlignment : uint64_t(SIZE_MAX) / 2;
  if (uint64_t(bytes) > most) return {};
#if PTL_HUGE_PAGES
  // A training step walks through the whole arena: with 4 KiB pages it waits for address translation.
  if (bytes >= 2 * kHugePage) {
    size_t mapped = size_t(bytes) + size_t(kHugePage);
    void* block = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return {};
    char* start = static_cast<char*>(block) + (kHugePage - intptr_t(block) % kHugePage) % kHugePage;
    madvise(start, size_t(bytes), MADV_HUGEPAGE);
    return std::shared_ptr<char>(start, [block, mapped](char*) { munmap(block, mapped); });
  }
#endif
  // calloc leaves large blocks to the system's zero pages; aligned_alloc and memset would touch them all.
  char* block = static_cast<char*>(calloc(size_t(bytes) + size_t(kAlignment), 1));
  if (!block) return {};
  char* aligned = block + (kAlignment - intptr_t(block) % kAlignment) % kAlignment;
  return std::shared_ptr<char>(aligned, [block](char*) { free(block); });
}

// Kernels assume the default floating-point modes; a host program may have set denormals to zero on its threads.
struct DefaultRounding {
#if defined(__SSE__)
  unsigned saved = _mm_getcsr();
  DefaultRounding() { _mm_setcsr(0x1f80); }
  ~DefaultRounding() { _mm_setcsr(saved); }
#else
  DefaultRounding() {}
#endif
};

Run run_of(ptl_engine* engine) {
  return Run{&engine->pool,
             engine->threads,
             engine->thread_scratch.get(),
             reinterpret_cast<float*>(engine->shared_scratch.get()),
             0,
             {}};
}

int refuse(ptl_engine* engine, int64_t record, const char* message) {
  snprintf(engine->error, sizeof engine->error, "record %lld %s", (long long)record, message);
  return 1;
}

} // namespace
} // namespace ptl

using namespace ptl;

ptl_engine* ptl_open_isa(int threads, const char* isa) {
  const Build* build = choose(isa);
  if (!build) return nullptr;
  ptl_engine* engine = new (std::nothrow) ptl_engine{};
  if (!engine) return nullptr;
  engine->build = build;
  engine->threads = engine->pool.start(threads < 1 ? 1 : threads > kMostThreads ? kMostThreads : threads);
  engine->thread_scratch = zeros(kThreadScratchBytes * engine->threads);
  engine->shared_scratch = zeros(kSharedScratchBytes);
  if (!engine->thread_scratch || !engine->shared_scratch) {
    delete engine;
    return nullptr;
  }
  return engine;
}

ptl_engine* ptl_open(int threads) { return ptl_open_isa(threads, nullptr); }
void ptl_close(ptl_engine* engine) { delete engine; }

int ptl_allocate(ptl_engine* engine, int region, int64_t bytes) {
  if (region < 0 || region >= kRegions || bytes < 0) {
    snprintf(engine->error, sizeof engine->error, "allocate: region %d of 0..%d, %lld bytes", region, kRegions - 1,
             (long long)bytes);
    return 1;
  }
  engine->memory[region].reset();
  engine->regions[region] = {nullptr, 0};
  std::shared_ptr<char> memory = zeros(bytes);
  if (!memory) {
    snprintf(engine->error, sizeof engine->error, "allocate: out of memory for %lld bytes of region %d",
             (long long)bytes, region);
    return 1;
  }
  engine->memory[region] = memory;
  engine->regions[region] = {memory.get(), bytes};
  return 0;
}

void* ptl_region(ptl_engine* engine, int region) {
  return region >= 0 && region < kRegions ? engine->regions[region].memory : nullptr;
}

int ptl_check(ptl_engine* engine, const int64_t* tape, int64_t records) {
  char* operands[kMostOperands];
  char message[sizeof Run::message];
  for (int64_t i = 0; i < records; i++)
    if (!resolve(tape + i * kWords, engine->regions, operands, message, sizeof message))
      return refuse(engine, i, message);
  return 0;
}

int ptl_replay(ptl_engine* engine, const int64_t* tape, int64_t records) {
  DefaultRounding rounding;
  Run run = run_of(engine);
  for (int64_t i = 0; i < records; i++) {
    const int64_t* record = tape + i * kWords;
    char* operands[kMostOperands];
    // Cheap beside any kernel, and a tape replayed unchecked, or after a region shrank, stays harmless.
    if (!resolve(record, engine->regions, operands, run.message, sizeof run.message))
      return refuse(engine, i, run.message);
    engine->build->kernels[record[0]](run, Operands{record, operands});
    if (run.failed) {
      char message[sizeof run.message + 40];
      snprintf(message, sizeof message, "%s: %s", kernel_name(int(record[0])), run.message);
      return refuse(engine, i, message);
    }
  }
  return 0;
}

const char* ptl_error(ptl_engine* engine) { return engine->error; }
int ptl_kernel_count(void) { return kernel_count(); }
const char* ptl_kernel_name(int id) { return kernel_name(id); }
const char* ptl_isa(void) { return choose(nullptr)->name; }
const char* ptl_engine_isa(ptl_engine* engine) { return engine->build->name; }
int ptl_threads(ptl_engine* engine) { return engine->threads; }

double ptl_bench_peak(ptl_engine* engine, double seconds) {
  return engine->build->peak(seconds, reinterpret_cast<float*>(engine->thread_scratch.get()));
}

double ptl_bench_gemm(ptl_engine* engine, int layout, int64_t m, int64_t n, int64_t k, int repeats) {
  const int64_t most = int64_t(1) << 20;
  if (layout < 0 || layout > 2 || m < 1 || n < 1 || k < 1 || m > most || n > most || k > most) return -1.0;
  std::shared_ptr<char> a = zeros(4 * m * k), b = zeros(4 * k * n), c = zeros(4 * m * n);
  if (!a || !b || !c) return -1.0;
  float* numbers[] = {reinterpret_cast<float*>(a.get()), reinterpret_cast<float*>(b.get())};
  for (int64_t i = 0; i < m * k; i++) numbers[0][i] = float(i % 17) * 0.125f - 1.0f;
  for (int64_t i = 0; i < k * n; i++) numbers[1][i] = float(i % 13) * 0.125f - 0.75f;
  double best = INFINITY;
  Run run = run_of(engine);
  for (int i = 0; i < repeats; i++) {
    auto start = std::chrono::steady_clock::now();
    engine->build->gemm(run, layout, m, n, k, numbers[0], numbers[1], reinterpret_cast<float*>(c.get()));
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds < best) best = seconds;
  }
  return best;
}
