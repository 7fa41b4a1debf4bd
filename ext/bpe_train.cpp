// As Hugging Face's BpeTrainer does it: a priority queue over pairs whose counts are brought up to date when they
// reach its top, and for each pair the words that it was seen in, so that a merge costs what it changes.
//
// Should two merges spell the same token (a+bc, ab+c; no text is known to bring that about), the second makes no new
// token, and a learned pair that it brings back is merged again but not listed again. BpeTrainer lists it again.
#include "bpe_train.h"

#include <queue>
#include <string>
#include <unordered_map>

namespace ptl {

namespace {

struct Pair {
  int32_t left, right;
  int64_t count = 0;
  int64_t queued = 0; // the largest count with which it waits in the queue
  bool learned = false;
  std::vector<uint32_t> words{}; // ascending within a round; may hold words that have it no more
};

struct Entry {
  int64_t count;
  int32_t left, right;
  uint32_t pair;
  bool operator<(const Entry& other) const { // std::priority_queue gives the largest
    if (count != other.count) return count < other.count;
    return left != other.left ? left > other.left : right > other.right;
  }
};

class Trainer {
public:
  Trainer(const WordTable& words, const std::vector<int64_t>& counts, const int32_t* byte_ids) : counts_(counts) {
    for (int byte = 0; byte < 256; byte++) name(byte_ids[byte], std::string(1, char(byte)));
    starts_.push_back(0);
    for (size_t word = 0; word < words.size(); word++) {
      for (size_t i = 0; i < words.bytes(word); i++) symbols_.push_back(byte_ids[words.text(word)[i]]);
      starts_.push_back(symbols_.size());
      lengths_.push_back(words.bytes(word));
    }
    for (uint32_t word = 0; word < counts.size(); word++)
      for (size_t i = starts_[word]; i + 1 < starts_[word + 1]; i++) change(symbols_[i], symbols_[i + 1], word, 1);
    requeue();
  }

  std::vector<int32_t> run(int64_t tokens, int64_t minimum) {
    std::vector<int32_t> merges;
    size_t wanted = names_.size() + size_t(tokens);
    while (names_.size() < wanted && !queue_.empty()) {
      Entry top = queue_.top();
      queue_.pop();
      Pair& pair = pairs_[top.pair];
      pair.queued = 0;
      if (pair.count != top.count) {
        enqueue(top.pair);
        continue;
      }
      if (pair.count < minimum) break;
      int32_t token = name(int32_t(names_.size()), names_[size_t(top.left)] + names_[size_t(top.right)]);
      if (!pair.learned) merges.insert(merges.end(), {top.left, top.right, token});
      pair.learned = true;
      std::vector<uint32_t> found;
      found.swap(pair.words);
      for (uint32_t word : found) merge(word, top.left, top.right, token);
      pairs_[top.pair].count = 0; // every occurrence is gone; `pair` may have moved
      requeue();
    }
    return merges;
  }

private:
  // The id of a token that is spelt so; `id` where there was none.
  int32_t name(int32_t id, const std::string& bytes) {
    auto [place, fresh] = ids_.emplace(bytes, id);
    if (fresh) {
      if (size_t(id) >= names_.size()) names_.resize(size_t(id) + 1);
      names_[size_t(id)] = bytes;
    }
    return place->second;
  }

  void change(int32_t left, int32_t right, uint32_t word, int64_t times) {
    uint32_t number = pair_of_.insert(left, right, uint32_t(pairs_.size()));
    if (number == pairs_.size()) pairs_.push_back({left, right});
    Pair& pair = pairs_[number];
    pair.count += times * counts_[word];
    if (times < 0) return;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    if (risen_.empty() || risen_.back() != number) risen_.push_back(number);
  }

  void merge(uint32_t word, int32_t left, int32_t right, int32_t token) {
    int32_t* symbols = symbols_.data() + starts_[word];
    size_t length = lengths_[word], kept = 0;
    for (size_t i = 0; i < length; i++) {
      if (symbols[i] != left || i + 1 >= length || symbols[i + 1] != right) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept) {
        change(symbols[kept - 1], left, word, -1);
        change(symbols[kept - 1], token, word, 1);
      }
      i++;
      if (i + 1 < length) {
        change(right, symbols[i + 1], word, -1);
        change(token, symbols[i + 1], word, 1);
      }
      symbols[kept++] = token;
    }
    lengths_[word] = kept;
  }

  void enqueue(uint32_t number) {
    Pair& pair = pairs_[number];
    if (pair.count <= pair.queued) return; // one that fell is brought up to date at the top
    queue_.push({pair.count, pair.left, pair.right, number});
    pair.queued = pair.count;
  }

  void requeue() {
    for (uint32_t number : risen_) enqueue(number);
    risen_.clear();
  }

  const std::vector<int64_t>& counts_;
  std::vector<int32_t> symbols_;
  std::vector<size_t> starts_, lengths_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> ids_;
  PairMap pair_of_;
  std::vector<Pair> pairs_;
  std::vector<uint32_t> risen_; // pairs that came anywhere since the last requeue, perhaps more than once
  std::priority_queue<Entry> queue_;
};

} // namespace

std::vector<int32_t> train(const WordTable& words, const std::vector<int64_t>& counts, const int32_t* byte_ids,
                           int64_t tokens, int64_t minimum) {
  return Trainer(words, counts, byte_ids).run(tokens, minimum);
}

} // namespace ptl
