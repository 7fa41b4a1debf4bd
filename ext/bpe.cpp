#include "bpe.h"

#include <algorithm>
#include <functional>
#include <new>
#include <queue>
#include <utility>

#include "bpe_tables.h"
#include "bpe_text.h"
#include "bpe_train.h"

namespace ptl {

namespace {

constexpr int64_t kTextBytes = int64_t(1) << 30; // of one call
constexpr size_t kCachedWords = 1 << 16, kCachedBytes = 4 << 20, kCachedWordBytes = 128;

struct Merge {
  int32_t left, right, token;
};

// One word at a time: the merge of lowest rank first, of equal ones the leftmost.
class Encoder {
public:
  // All of a table or, where it is refused or memory runs out, nothing: half a table has ids that index nothing.
  bool load(const int32_t* byte_ids, const int32_t* merges, int64_t count) {
    if (*std::min_element(byte_ids, byte_ids + 256) < 0) return false;
    Encoder loaded;
    std::copy_n(byte_ids, 256, loaded.byte_ids_);
    for (int64_t rank = 0; rank < count; rank++, merges += 3) {
      if (std::min({merges[0], merges[1], merges[2]}) < 0) return false;
      loaded.merges_.push_back({merges[0], merges[1], merges[2]});
      if (loaded.ranks_.insert(merges[0], merges[1], uint32_t(rank)) != uint32_t(rank)) return false;
    }
    *this = std::move(loaded);
    return true;
  }

  void append(const uint8_t* word, size_t bytes, std::vector<int32_t>& ids) {
    if (bytes == 1) {
      ids.push_back(byte_ids_[*word]);
      return;
    }
    if (bytes > kCachedWordBytes) {
      merge(word, bytes, ids);
      return;
    }
    if (starts_.empty() || cached_.size() >= kCachedWords || cached_.text_bytes() > kCachedBytes) forget();
    uint32_t number = cached_.add(word, bytes);
    if (number + 1 == starts_.size()) {
      merge(word, bytes, ids_);
      starts_.push_back(ids_.size());
    }
    ids.insert(ids.end(), ids_.begin() + ptrdiff_t(starts_[number]), ids_.begin() + ptrdiff_t(starts_[number + 1]));
  }

  const int32_t* byte_ids() const { return byte_ids_; }

  // After an allocation failed: what is cached may be half a word.
  void distrust() {
    starts_.clear();
    waiting_ = {};
  }

private:
  void forget() {
    cached_ = WordTable();
    ids_.clear();
    starts_.assign(1, 0);
  }

  struct Symbol {
    int32_t id, previous, next; // positions; -1 at the ends
  };

  void offer(int32_t position) {
    int32_t next = position < 0 ? -1 : symbols_[size_t(position)].next;
    if (next < 0) return;
    uint32_t rank = ranks_.find(symbols_[size_t(position)].id, symbols_[size_t(next)].id);
    if (rank != PairMap::kNone) waiting_.push(uint64_t(rank) << 32 | uint32_t(position));
  }

  void merge(const uint8_t* word, size_t bytes, std::vector<int32_t>& ids) {
    int32_t last = int32_t(bytes) - 1;
    symbols_.resize(bytes);
    for (int32_t i = 0; i <= last; i++) symbols_[size_t(i)] = {byte_ids_[word[i]], i - 1, i < last ? i + 1 : -1};
    for (int32_t i = 0; i < last; i++) offer(i);
    while (!waiting_.empty()) {
      uint64_t top = waiting_.top();
      waiting_.pop();
      const Merge& merge = merges_[top >> 32];
      int32_t position = int32_t(uint32_t(top));
      Symbol& symbol = symbols_[size_t(position)];
      if (symbol.id != merge.left || symbol.next < 0 || symbols_[size_t(symbol.next)].id != merge.right) continue;
      Symbol& right = symbols_[size_t(symbol.next)];
      symbol.id = merge.token;
      symbol.next = right.next;
      right.id = -1; // gone: no entry for it matches a merge any more
      if (symbol.next >= 0) symbols_[size_t(symbol.next)].previous = position;
      offer(position);
      offer(symbol.previous);
    }
    for (int32_t i = 0; i >= 0; i = symbols_[size_t(i)].next) ids.push_back(symbols_[size_t(i)].id);
  }

  int32_t byte_ids_[256] = {};
  std::vector<Merge> merges_;
  PairMap ranks_;
  std::vector<Symbol> symbols_;
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>> waiting_;
  WordTable cached_;
  std::vector<int32_t> ids_;      // of the cached words, one after another
  std::vector<size_t> starts_{0}; // where each begins, and where the last ends
};

} // namespace

} // namespace ptl

struct ptl_bpe {
  ptl::Classes classes;
  ptl::Encoder encoder;
  ptl::WordTable words;
  std::vector<int64_t> counts;
  std::vector<int32_t> result;

  // Calls each(word, bytes) for the pre-tokens of a text.
  template <class Each> int64_t split(const uint8_t* text, int64_t bytes, Each each) {
    if (bytes < 0 || bytes > ptl::kTextBytes) return kBpeArgument;
    for (size_t at = 0, end; at < size_t(bytes); at = end) {
      end = ptl::pretoken_end(classes, text, at, size_t(bytes));
      each(text + at, end - at);
    }
    return 0;
  }
};

namespace {

// Runs `work`; out of memory becomes its code (in WebAssembly it ends the instance, which the loader notices).
template <class Work> int64_t guarded(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return kBpeMemory;
  }
}

} // namespace

ptl_bpe* ptl_bpe_open(const int32_t* runs, int64_t count) {
  ptl_bpe* bpe = nullptr;
  int64_t failed = guarded([&] {
    bpe = new ptl_bpe;
    return int64_t(bpe->classes.fill(runs, count) ? 0 : kBpeArgument);
  });
  if (!failed) return bpe;
  delete bpe;
  return nullptr;
}

void ptl_bpe_close(ptl_bpe* bpe) { delete bpe; }

int64_t ptl_bpe_load(ptl_bpe* bpe, const int32_t* table, int64_t count) {
  return guarded([&]() -> int64_t {
    bpe->words = ptl::WordTable();
    bpe->counts.clear();
    if (count < 256 || (count - 256) % 3) return kBpeArgument;
    return bpe->encoder.load(table, table + 256, (count - 256) / 3) ? 0 : kBpeArgument;
  });
}

int64_t ptl_bpe_encode(ptl_bpe* bpe, const uint8_t* text, int64_t bytes) {
  int64_t count = guarded([&] {
    bpe->result.clear();
    int64_t failed = bpe->split(
        text, bytes, [&](const uint8_t* word, size_t length) { bpe->encoder.append(word, length, bpe->result); });
    return failed ? failed : int64_t(bpe->result.size());
  });
  if (count == kBpeMemory) bpe->encoder.distrust();
  return count;
}

int64_t ptl_bpe_split(ptl_bpe* bpe, const uint8_t* text, int64_t bytes) {
  return guarded([&] {
    bpe->result.clear();
    int64_t failed =
        bpe->split(text, bytes, [&](const uint8_t*, size_t length) { bpe->result.push_back(int32_t(length)); });
    return failed ? failed : int64_t(bpe->result.size());
  });
}

int64_t ptl_bpe_count(ptl_bpe* bpe, const uint8_t* text, int64_t bytes) {
  return guarded([&] {
    int64_t failed = bpe->split(text, bytes, [&](const uint8_t* word, size_t length) {
      uint32_t number = bpe->words.add(word, length);
      if (number == bpe->counts.size()) bpe->counts.push_back(0);
      bpe->counts[number]++;
    });
    return failed ? failed : int64_t(bpe->words.size());
  });
}

int64_t ptl_bpe_train(ptl_bpe* bpe, int64_t tokens, int64_t minimum) {
  return guarded([&]() -> int64_t {
    const int32_t* byte_ids = bpe->encoder.byte_ids();
    std::vector<bool> seen(256);
    for (int byte = 0; byte < 256; byte++) {
      if (byte_ids[byte] > 255 || seen[size_t(byte_ids[byte])]) return kBpeArgument; // new ids begin at 256
      seen[size_t(byte_ids[byte])] = true;
    }
    if (tokens < 0 || tokens > (int64_t(1) << 30) || minimum < 1) return kBpeArgument;
    bpe->result = ptl::train(bpe->words, bpe->counts, byte_ids, tokens, minimum);
    return int64_t(bpe->result.size() / 3);
  });
}

const int32_t* ptl_bpe_result(ptl_bpe* bpe) { return bpe->result.data(); }
