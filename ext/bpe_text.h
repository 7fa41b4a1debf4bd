// GPT-2's pre-tokenizer over UTF-8, without a regular expression engine.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace ptl {

enum : uint8_t { kOther, kLetter, kNumber, kSpace };

// The class of each code point, in blocks of 256 of which equal ones are kept once.
class Classes {
public:
  // False when the runs (length << 2 | class) do not cover exactly the code points.
  bool fill(const int32_t* runs, int64_t count);

  // The class of the character at text[at], which has `length` bytes; a byte that is not UTF-8 is one of class other.
  uint8_t at(const uint8_t* text, size_t at, size_t bytes, size_t& length) const {
    uint8_t first = text[at];
    if (first < 0x80) {
      length = 1;
      return ascii_[first];
    }
    return wide(text + at, bytes - at, length);
  }

private:
  uint8_t wide(const uint8_t* text, size_t bytes, size_t& length) const;

  uint8_t ascii_[128];
  uint16_t block_[0x1100];
  std::vector<uint8_t> blocks_;
};

// Where the pre-token that begins at `at` < bytes ends: the first match of
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t pretoken_end(const Classes& classes, const uint8_t* text, size_t at, size_t bytes);

} // namespace ptl
