// The engine as the Python module posttrainllm._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "engine_state.h"
#include "native_bpe.h"

namespace nb = nanobind;

namespace {

using Memory = std::shared_ptr<char>;

class Engine {
public:
  Engine(int threads, std::optional<std::string> isa) {
    if (threads < 1) throw nb::value_error("threads must be at least 1");
    engine_ = ptl_open_isa(threads, isa ? isa->c_str() : nullptr);
    if (!engine_ && isa) throw nb::value_error(("no build named '" + *isa + "' runs on this host").c_str());
    if (!engine_) throw std::bad_alloc();
  }
  ~Engine() { ptl_close(engine_); }
  Engine(const Engine&) = delete;

  void allocate(int region, int64_t bytes) {
    if (region < 0 || region >= ptl::kRegions || bytes < 0) throw nb::value_error("no such region, or a negative size");
    std::lock_guard<std::mutex> alone(replaying_);
    if (ptl_allocate(engine_, region, bytes)) {
      PyErr_SetString(PyExc_MemoryError, ptl_error(engine_));
      throw nb::python_error();
    }
  }

  nb::object view(int region) {
    if (region < 0 || region >= ptl::kRegions) throw nb::value_error("no such region");
    auto* memory = new Memory(engine_->memory[region]);
    nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<Memory*>(p); });
    size_t shape[] = {size_t(engine_->regions[region].bytes)};
    return nb::cast(nb::ndarray<nb::memview, uint8_t, nb::ndim<1>>(memory->get(), 1, shape, owner));
  }

  void check(nb::bytes tape) { run(tape, ptl_check); }
  void replay(nb::bytes tape) { run(tape, ptl_replay); }
  std::string isa() const { return ptl_engine_isa(engine_); }
  int threads() const { return ptl_threads(engine_); }
  double bench_peak(double seconds) { return ptl_bench_peak(engine_, seconds); }
  double bench_gemm(int layout, int64_t m, int64_t n, int64_t k, int repeats) {
    return ptl_bench_gemm(engine_, layout, m, n, k, repeats);
  }

private:
  void run(const nb::bytes& tape, int (*function)(ptl_engine*, const int64_t*, int64_t)) {
    if (tape.size() % (8 * ptl::kWords)) throw nb::value_error("a tape is a whole number of 256-byte records");
    // A bytes object's data need not be aligned to 8 by contract; CPython's is.
    const int64_t* words = reinterpret_cast<const int64_t*>(tape.c_str());
    int64_t records = int64_t(tape.size() / (8 * ptl::kWords));
    std::string error;
    {
      // Python threads may share an engine: one replays at a time, and none holds the GIL while it waits for that.
      nb::gil_scoped_release released;
      std::lock_guard<std::mutex> alone(replaying_);
      if (function(engine_, words, records)) error = ptl_error(engine_);
    }
    if (!error.empty()) throw std::runtime_error(error);
  }

  ptl_engine* engine_;
  std::mutex replaying_;
};

} // namespace

NB_MODULE(_native, module) {
  module.doc() = "The C++ engine: replays tapes (ext/engine.h) on the CPU.";
  nb::class_<Engine>(module, "Engine")
      .def(nb::init<int, std::optional<std::string>>(), nb::arg("threads"), nb::arg("isa") = nb::none(),
           "threads >= 1, the calling thread included; isa 'sse2', 'avx2', 'avx512' or 'neon' picks that build, None "
           "the "
           "widest this host runs. ValueError when the host cannot run it.")
      .def("allocate", &Engine::allocate, nb::arg("region"), nb::arg("bytes"),
           "Gives a region zero-filled memory, dropping what it had (views of that stay valid, detached). MemoryError.")
      .def("view", &Engine::view, nb::arg("region"), "The region as a writable memoryview of bytes, without a copy.")
      .def("check", &Engine::check, nb::arg("tape"), "RuntimeError names the first record that must not run, and why.")
      .def("replay", &Engine::replay, nb::arg("tape"),
           "Runs the tape's records in order, without the GIL. RuntimeError.")
      .def("bench_peak", &Engine::bench_peak, nb::arg("seconds"), "GFLOP/s of multiply-add in registers, one thread.")
      .def("bench_gemm", &Engine::bench_gemm, nb::arg("layout"), nb::arg("m"), nb::arg("n"), nb::arg("k"),
           nb::arg("repeats"), "Best seconds of C[m,n] = A.B; layout 0 NN, 1 NT, 2 TN.")
      .def_prop_ro("isa", &Engine::isa)
      .def_prop_ro("threads", &Engine::threads);
  module.def("isa", [] { return std::string(ptl_isa()); }, "The build this host gets by default.");
  module.def(
      "kernel_names",
      [] {
        std::vector<std::string> names;
        for (int id = 0; id < ptl_kernel_count(); id++) names.emplace_back(ptl_kernel_name(id));
        return names;
      },
      "The kernels' names in id order.");
  bind_bpe(module);
}
