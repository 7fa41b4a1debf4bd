#include "pool.h"

#if !defined(__EMSCRIPTEN__) || defined(__EMSCRIPTEN_PTHREADS__)
#define PTL_THREADS 1
#include <new>
#include <system_error>
#include <thread>
#include <vector>
#endif
#if defined(__EMSCRIPTEN_PTHREADS__)
#include <emscripten/threading.h>
#include <math.h>
#endif

namespace ptl {

#if PTL_THREADS

struct Pool::Threads {
  std::vector<std::thread> list;
};

namespace {

// Some 50 us: long enough to bridge the gap between two kernels of a tape, short enough to give the core back when the
// host language takes over between steps. WebAssembly has no pause, so there a spin is shorter.
#if defined(__EMSCRIPTEN__)
constexpr int kSpins = 20000;
#else
constexpr int kSpins = 4000;
#endif

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) && !defined(__EMSCRIPTEN__)
  __asm__ volatile("yield");
#endif
}

// Sleeps while word == seen; may wake early.
void sleep_while(std::atomic<uint32_t>& word, uint32_t seen) {
#if defined(__EMSCRIPTEN_PTHREADS__)
  emscripten_futex_wait(&word, seen, INFINITY);
#else
  word.wait(seen, std::memory_order_seq_cst);
#endif
}

void wake_all(std::atomic<uint32_t>& word) {
#if defined(__EMSCRIPTEN_PTHREADS__)
  emscripten_futex_wake(&word, 1 << 30);
#else
  word.notify_all();
#endif
}

} // namespace

int Pool::start(int threads) {
  threads_list_ = new (std::nothrow) Threads;
  if (!threads_list_) return threads_ = 1;
  int started = 1;
  for (; started < threads; started++) {
    // Emscripten is built without exceptions: there, thread creation cannot throw and the pool is made beforehand.
#if defined(__EMSCRIPTEN__)
    threads_list_->list.emplace_back([this, started] { worker(started); });
#else
    try {
      threads_list_->list.emplace_back([this, started] { worker(started); });
    } catch (const std::system_error&) {
      break;
    }
#endif
  }
  return threads_ = started;
}

Pool::~Pool() {
  if (!threads_list_) return;
  stop_.store(true);
  generation_.fetch_add(1);
  wake_all(generation_);
  for (auto& thread : threads_list_->list) thread.join();
  delete threads_list_;
}

void Pool::work(uint32_t generation, int thread) {
  for (;;) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    // The job's fields are read before the compare-exchange. If they are already the next job's, the ticket was closed
    // before they were written, so the exchange fails; if it succeeds, they belong to the ticket's job.
    Task task = task_.load(std::memory_order_acquire);
    void* context = context_.load(std::memory_order_acquire);
    uint32_t count = count_.load(std::memory_order_acquire);
    if (uint32_t(ticket >> 32) != generation || uint32_t(ticket) >= count) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    task(context, int64_t(uint32_t(ticket)), thread);
    if (remaining_.fetch_sub(1) == 1 && caller_sleeps_.load()) wake_all(remaining_);
  }
}

void Pool::worker(int thread) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = generation_.load(std::memory_order_acquire);
    for (int spin = 0; now == seen && spin < kSpins; spin++) {
      pause_briefly();
      now = generation_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      sleepers_.fetch_add(1);
      while ((now = generation_.load()) == seen) sleep_while(generation_, seen);
      sleepers_.fetch_sub(1);
    }
    if (stop_.load()) return;
    seen = now;
    work(now, thread);
  }
}

void Pool::run(int64_t count, Task task, void* context) {
  if (threads_ == 1 || count <= 1) {
    for (int64_t i = 0; i < count; i++) task(context, i, 0);
    return;
  }
  uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  ticket_.store(uint64_t(generation) << 32 | UINT32_MAX); // closed
  task_.store(task, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  count_.store(uint32_t(count), std::memory_order_release);
  remaining_.store(uint32_t(count), std::memory_order_release);
  ticket_.store(uint64_t(generation) << 32, std::memory_order_release);
  generation_.store(generation);
  if (sleepers_.load()) wake_all(generation_);
  work(generation, 0);
  uint32_t left = remaining_.load(std::memory_order_acquire);
  for (int spin = 0; left && spin < kSpins; spin++) {
    pause_briefly();
    left = remaining_.load(std::memory_order_acquire);
  }
  if (!left) return;
  caller_sleeps_.store(1);
  while ((left = remaining_.load()) != 0) sleep_while(remaining_, left);
  caller_sleeps_.store(0);
}

#else // one thread

struct Pool::Threads {};
int Pool::start(int) { return threads_ = 1; }
Pool::~Pool() {}
void Pool::run(int64_t count, Task task, void* context) {
  for (int64_t i = 0; i < count; i++) task(context, i, 0);
}

#endif

} // namespace ptl
