#include "bpe_text.h"

#include <string.h>

namespace ptl {

bool Classes::fill(const int32_t* runs, int64_t count) {
  constexpr int32_t kCodePoints = 0x110000;
  std::vector<uint8_t> all;
  all.reserve(kCodePoints);
  for (int64_t i = 0; i < count; i++) {
    int32_t length = runs[i] >> 2;
    if (length < 1 || length > kCodePoints - int32_t(all.size())) return false;
    all.insert(all.end(), size_t(length), uint8_t(runs[i] & 3));
  }
  if (all.size() != kCodePoints) return false;
  memcpy(ascii_, all.data(), sizeof ascii_);
  blocks_.clear();
  for (size_t block = 0; block < 0x1100; block++) {
    const uint8_t* wanted = all.data() + 256 * block;
    size_t found = 0;
    while (found < blocks_.size() && memcmp(blocks_.data() + found, wanted, 256)) found += 256;
    if (found == blocks_.size()) blocks_.insert(blocks_.end(), wanted, wanted + 256);
    block_[block] = uint16_t(found / 256);
  }
  return true;
}

uint8_t Classes::wide(const uint8_t* text, size_t bytes, size_t& length) const {
  // Table 3-7 of the Unicode Standard: the second byte's range depends on the first, later ones are 80..BF.
  uint8_t first = text[0];
  size_t wanted = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
  length = 1;
  if (wanted == 1 || bytes < wanted) return kOther;
  uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (text[1] < low || text[1] > high) return kOther;
  uint32_t code = uint32_t(first & (0x7F >> wanted)) << 6 | (text[1] & 0x3F);
  for (size_t i = 2; i < wanted; i++) {
    if ((text[i] & 0xC0) != 0x80) return kOther;
    code = code << 6 | (text[i] & 0x3F);
  }
  length = wanted;
  return blocks_[size_t(block_[code >> 8]) << 8 | (code & 0xFF)];
}

namespace {

// Bytes of the contraction after an apostrophe at text[at], 0 where there is none.
size_t contraction(const uint8_t* text, size_t at, size_t bytes) {
  if (at + 1 >= bytes) return 0;
  uint8_t a = text[at + 1], b = at + 2 < bytes ? text[at + 2] : 0;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

} // namespace

size_t pretoken_end(const Classes& classes, const uint8_t* text, size_t at, size_t bytes) {
  if (text[at] == '\'') {
    size_t length = contraction(text, at, bytes);
    if (length) return at + length;
  }
  size_t length, end = at;
  uint8_t run = classes.at(text, at, bytes, length);
  if (text[at] == ' ' && at + 1 < bytes) {
    size_t next;
    uint8_t following = classes.at(text, at + 1, bytes, next);
    if (following != kSpace) run = following, length = 1 + next;
  }
  size_t last = at; // where the run's last character begins
  end += length;
  while (end < bytes && classes.at(text, end, bytes, length) == run) last = end, end += length;
  // White space before something else leaves its last character to it, unless that is all there is.
  return run == kSpace && end < bytes && last > at ? last : end;
}

} // namespace ptl
