// ext/bpe.h as posttrainllm._native.Bpe. int32 arrays go in and out as bytes objects.
#include "native_bpe.h"

#include <mutex>
#include <new>
#include <stdexcept>

#include "bpe.h"

namespace nb = nanobind;

namespace {

class Bpe {
public:
  explicit Bpe(nb::bytes runs) : bpe_(ptl_bpe_open(words(runs), int64_t(runs.size() / 4))) {
    if (!bpe_) throw nb::value_error("the runs cover each code point once");
  }
  ~Bpe() { ptl_bpe_close(bpe_); }
  Bpe(const Bpe&) = delete;

  void load(nb::bytes table) {
    call([&] { return ptl_bpe_load(bpe_, words(table), int64_t(table.size() / 4)); });
  }
  int64_t count(nb::bytes text) {
    return call([&] { return ptl_bpe_count(bpe_, letters(text), int64_t(text.size())); });
  }
  nb::bytes encode(nb::bytes text) {
    return result([&] { return ptl_bpe_encode(bpe_, letters(text), int64_t(text.size())); }, 1);
  }
  nb::bytes split(nb::bytes text) {
    return result([&] { return ptl_bpe_split(bpe_, letters(text), int64_t(text.size())); }, 1);
  }
  nb::bytes train(int64_t tokens, int64_t minimum) {
    return result([&] { return ptl_bpe_train(bpe_, tokens, minimum); }, 3);
  }

private:
  static const int32_t* words(const nb::bytes& data) { return reinterpret_cast<const int32_t*>(data.c_str()); }
  static const uint8_t* letters(const nb::bytes& data) { return reinterpret_cast<const uint8_t*>(data.c_str()); }

  template <class Work> int64_t locked(Work work) {
    nb::gil_scoped_release released; // none waits for its turn with the GIL held
    alone_.lock();
    return work();
  }

  static int64_t checked(int64_t count) {
    if (count == kBpeMemory) throw std::bad_alloc();
    if (count < 0) throw nb::value_error("an argument outside its range");
    return count;
  }

  template <class Work> int64_t call(Work work) {
    int64_t count = locked(work);
    alone_.unlock();
    return checked(count);
  }

  template <class Work> nb::bytes result(Work work, int64_t each) {
    int64_t count = locked(work);
    std::lock_guard<std::mutex> held(alone_, std::adopt_lock); // until the result is copied
    return nb::bytes(reinterpret_cast<const char*>(ptl_bpe_result(bpe_)), size_t(4 * each * checked(count)));
  }

  ptl_bpe* bpe_;
  std::mutex alone_;
};

} // namespace

void bind_bpe(nb::module_& module) {
  nb::class_<Bpe>(module, "Bpe", "Byte-level BPE (ext/bpe.h). Arrays are int32 in bytes objects.")
      .def(nb::init<nb::bytes>(), nb::arg("runs"), "Runs of code points, length << 2 | class. ValueError.")
      .def("load", &Bpe::load, nb::arg("table"),
           "256 ids of the bytes, then (left, right, token) each merge. ValueError.")
      .def("encode", &Bpe::encode, nb::arg("text"), "The ids of a text's bytes.")
      .def("split", &Bpe::split, nb::arg("text"), "The lengths of its pre-tokens.")
      .def("count", &Bpe::count, nb::arg("text"),
           "Adds its pre-tokens to the counts; how many different ones there are.")
      .def("train", &Bpe::train, nb::arg("tokens"), nb::arg("minimum"), "(left, right, token) of each merge learned.");
}
