// Hash tables of the tokenizer: pairs of ids, and byte strings. Open addressing; nothing is ever removed.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <string>
#include <vector>

namespace ptl {

inline uint64_t scramble(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  return x;
}

// (left, right) -> a number below 2^32 - 1.
class PairMap {
public:
  static constexpr uint32_t kNone = ~uint32_t(0);

  uint32_t find(int32_t left, int32_t right) const {
    uint64_t key = pack(left, right);
    for (size_t slot = scramble(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].value;
      if (slots_[slot].value == kNone) return kNone;
    }
  }

  // The value of a pair, `value` itself where it was not there before.
  uint32_t insert(int32_t left, int32_t right, uint32_t value) {
    if (2 * (size_ + 1) > mask_) grow();
    uint64_t key = pack(left, right);
    size_t slot = scramble(key) & mask_;
    while (slots_[slot].value != kNone) {
      if (slots_[slot].key == key) return slots_[slot].value;
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = {key, value};
    size_++;
    return value;
  }

private:
  struct Slot {
    uint64_t key = ~uint64_t(0); // no pair: ids are not negative
    uint32_t value = kNone;
  };

  static uint64_t pack(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

  void grow() {
    std::vector<Slot> old(2 * (mask_ + 1));
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& each : old) {
      if (each.value == kNone) continue;
      size_t slot = scramble(each.key) & mask_;
      while (slots_[slot].value != kNone) slot = (slot + 1) & mask_;
      slots_[slot] = each;
    }
  }

  size_t size_ = 0, mask_ = 63;
  std::vector<Slot> slots_ = std::vector<Slot>(64);
};

// Different byte strings, numbered in the order in which they came.
class WordTable {
public:
  // The word's number; equal to the size() before where it is new.
  uint32_t add(const uint8_t* text, size_t bytes) {
    uint64_t hash = hashed(text, bytes);
    size_t slot = hash & mask_;
    for (; slots_[slot] != kFree; slot = (slot + 1) & mask_) {
      const Word& word = words_[slots_[slot]];
      if (word.hash == hash && word.bytes == bytes && !memcmp(text_.data() + word.start, text, bytes))
        return slots_[slot];
    }
    uint32_t number = uint32_t(words_.size());
    words_.push_back({hash, text_.size(), bytes});
    text_.append(reinterpret_cast<const char*>(text), bytes);
    slots_[slot] = number;
    if (2 * words_.size() > mask_) grow();
    return number;
  }

  size_t size() const { return words_.size(); }
  size_t text_bytes() const { return text_.size(); }
  const uint8_t* text(size_t number) const {
    return reinterpret_cast<const uint8_t*>(text_.data()) + words_[number].start;
  }
  size_t bytes(size_t number) const { return words_[number].bytes; }

private:
  static constexpr uint32_t kFree = ~uint32_t(0);
  struct Word {
    uint64_t hash;
    size_t start, bytes;
  };

  static uint64_t hashed(const uint8_t* text, size_t bytes) {
    uint64_t hash = scramble(bytes + 1);
    for (; bytes >= 8; text += 8, bytes -= 8) {
      uint64_t piece;
      memcpy(&piece, text, 8);
      hash = scramble(hash ^ piece);
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < bytes; i++) rest |= uint64_t(text[i]) << (8 * i);
    return scramble(hash ^ rest);
  }

  void grow() {
    slots_.assign(2 * (mask_ + 1), kFree);
    mask_ = slots_.size() - 1;
    for (uint32_t number = 0; number < words_.size(); number++) {
      size_t slot = words_[number].hash & mask_;
      while (slots_[slot] != kFree) slot = (slot + 1) & mask_;
      slots_[slot] = number;
    }
  }

  size_t mask_ = 1023;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(1024, kFree);
  std::vector<Word> words_;
  std::string text_;
};

} // namespace ptl
