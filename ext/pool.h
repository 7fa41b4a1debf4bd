// A persistent pool of threads that share numbered tasks. The calling thread takes part. A task may go to any thread,
// so kernels write results that do not depend on who computes them.
#pragma once
#include <stdint.h>

#include <atomic>

namespace ptl {

class Pool {
public:
  using Task = void (*)(void* context, int64_t task, int thread);

  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();

  // Starts threads - 1 threads (fewer when the system refuses). Returns the number that will work, the caller included.
  int start(int threads);
  // Runs task(context, 0..count-1, thread) and returns when all are done. Not re-entrant; one caller at a time.
  void run(int64_t count, Task task, void* context);
  int threads() const { return threads_; }

private:
  void worker(int thread);
  void work(uint32_t generation, int thread);

  // High half: generation of the current job; low half: the next task. A late thread cannot take a task of a job it did
  // not see, since its compare-exchange fails when the generation has moved on.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> generation_{0}; // what sleepers wait on
  std::atomic<uint32_t> remaining_{0};  // tasks not finished; the caller waits for zero
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> caller_sleeps_{0};
  std::atomic<bool> stop_{false};
  std::atomic<Task> task_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> count_{0};
  int threads_ = 1;
  struct Threads;
  Threads* threads_list_ = nullptr;
};

} // namespace ptl
